"""Prepares a cloud for the lane, and lists what it has. No driver wrote this client.

    observer.py hcloud URL          the stand-in for Hetzner Cloud
    observer.py aws URL             moto, with boto3
    observer.py openstack FILE      a control plane that FILE describes, with openstacksdk

Each line of standard input is a command. Its answer is one line of JSON:

    prepare   creates what classes need, and describes the classes
    list      all instances that exist, the parts that belong to them, and how many instances
              were ever made
"""

import json
import sys
import urllib.request

# The name of the cluster in the marks of the classes.
CLUSTER = "shoot--lane--takeover"

USER_DATA = """#cloud-config
write_files:
- path: /var/lib/bootstrap-token
  content: <<BOOTSTRAP_TOKEN>>
- path: /etc/machine-name
  content: <<MACHINE_NAME>>
"""


class Hcloud:
    """Servers, and the floating address of each one."""

    ZONE = "hel1-dc2"
    POOL = "pool1"
    TOKEN = "takeover"
    NAME = CLUSTER + "-workers"

    def __init__(self, url):
        self.url = url

    def send(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": "Bearer " + self.TOKEN, "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def prepare(self):
        key = {"name": CLUSTER, "public_key": "ssh-ed25519 AAAA lane"}
        fingerprint = self.send("POST", "/v1/ssh_keys", key)["ssh_key"]["fingerprint"]
        subnet = {"type": "cloud", "network_zone": "eu-central", "ip_range": "10.250.0.0/19"}
        network = {"name": self.NAME, "ip_range": "10.250.0.0/16", "subnets": [subnet]}
        self.send("POST", "/v1/networks", network)
        spec = {
            "cluster": CLUSTER,
            "zone": self.ZONE,
            "serverType": "cx22",
            "imageName": "ubuntu-22.04",
            "sshFingerprint": fingerprint,
            "networkName": self.NAME,
            "placementGroupID": "",
            "floatingPoolName": self.POOL,
            "extraConfig": {},
            "tags": {"mcm.gardener.cloud/cluster": CLUSTER},
        }
        return {
            "provider": "hclouddriver//127.0.0.1:8080",
            "classes": [spec, spec | {"serverType": "cx23"}],
            "types": ["cx22", "cx23"],
            "secret": {"token": self.TOKEN, "userData": USER_DATA},
            "marks": {
                "instance": {
                    "mcm.gardener.cloud/cluster": CLUSTER,
                    "mcm.gardener.cloud/role": "node",
                    "topology.kubernetes.io/region": self.ZONE.partition("-")[0],
                    "topology.kubernetes.io/zone": self.ZONE,
                },
                "floating address": {
                    "mcm.gardener.cloud/cluster": CLUSTER,
                    "networking.hcloud.mcm.gardener.cloud/floating-pool": self.POOL,
                },
            },
        }

    def list(self):
        state = self.send("GET", "/_control/state")
        instances = [
            {
                "id": f"hcloud:///{self.ZONE}/{server['id']}",
                "machine": server["name"],
                "node": server["name"],
                "nodeId": f"hcloud://{server['id']}",
                "runs": server["status"] == "running",
                "type": server["server_type"],
                "marks": server["labels"],
            }
            for server in state["servers"].values()
            if server["deleted"] is None
        ]
        parts = [
            {
                "kind": "floating address",
                "id": str(address["id"]),
                "machine": address["name"].removeprefix(self.POOL + "-").removesuffix("-ipv4"),
                "instance": address["server"] and f"hcloud:///{self.ZONE}/{address['server']}",
                "marks": address["labels"],
            }
            for address in state["floating_ips"].values()
        ]
        return {"instances": instances, "parts": parts, "ever": len(state["servers"])}


class Aws:
    """Instances of EC2, and their volumes and network interfaces."""

    REGION = "eu-west-1"
    ACCESS_KEY = "AKIAIOSFODNN7EXAMPLE"
    # moto checks no signatures; the proxy in front of it knows this key.
    SECRET_KEY = "not-checked"
    NAME = CLUSTER + "-nodes"
    # moto has this image.
    IMAGE = "ami-760aaa0f"
    TAGS = {f"kubernetes.io/cluster/{CLUSTER}": "1", "kubernetes.io/role/node": "1", "pool": "worker"}

    def __init__(self, url):
        import boto3

        def client(service):
            return boto3.client(
                service,
                endpoint_url=url,
                region_name=self.REGION,
                aws_access_key_id=self.ACCESS_KEY,
                aws_secret_access_key=self.SECRET_KEY,
            )

        self.ec2, self.iam = client("ec2"), client("iam")

    def prepare(self):
        self.iam.create_instance_profile(InstanceProfileName=self.NAME)
        self.ec2.create_key_pair(KeyName=self.NAME)
        subnet = self.ec2.describe_subnets()["Subnets"][0]["SubnetId"]
        group = self.ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"]
        spec = {
            "ami": self.IMAGE,
            "region": self.REGION,
            "machineType": "m5.large",
            "iam": {"name": self.NAME},
            "keyName": self.NAME,
            "blockDevices": [{"ebs": {"volumeSize": 50, "volumeType": "gp3", "encrypted": True}}],
            "networkInterfaces": [{"subnetID": subnet, "securityGroupIDs": [group]}],
            "instanceMetadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 2},
            "srcAndDstChecksEnabled": False,
            "tags": self.TAGS | {"Name": CLUSTER},
        }
        return {
            "provider": "AWS",
            "classes": [spec, spec | {"machineType": "m5.xlarge"}],
            "types": ["m5.large", "m5.xlarge"],
            "secret": {
                "accessKeyID": self.ACCESS_KEY,
                "secretAccessKey": self.SECRET_KEY,
                "userData": USER_DATA,
            },
            # moto stores no tags of interfaces.
            "marks": {
                "instance": self.TAGS,
                "volume": self.TAGS,
                "network interface": {"source check": "False"},
            },
        }

    def list(self):
        pages = self.ec2.get_paginator("describe_instances").paginate()
        ever = [one for page in pages for group in page["Reservations"] for one in group["Instances"]]
        alive = [one for one in ever if one["State"]["Name"] not in ("shutting-down", "terminated")]
        names = {one["InstanceId"]: tags_of(one)["Name"] for one in alive}
        instances = [
            {
                "id": self.id_of(one["InstanceId"]),
                "machine": names[one["InstanceId"]],
                "node": one["PrivateDnsName"],
                "nodeId": f"aws:///{one['Placement']['AvailabilityZone']}/{one['InstanceId']}",
                "runs": one["State"]["Name"] == "running",
                "type": one["InstanceType"],
                "marks": tags_of(one),
            }
            for one in alive
        ]
        parts = []
        for volume in self.ec2.describe_volumes()["Volumes"]:
            attached = [one["InstanceId"] for one in volume["Attachments"]]
            tags = tags_of(volume)
            parts.append(self.part("volume", volume["VolumeId"], attached, tags.get("Name", ""), tags))
        for card in self.ec2.describe_network_interfaces()["NetworkInterfaces"]:
            instance = card.get("Attachment", {}).get("InstanceId")
            attached, name = [instance] if instance else [], names.get(instance, "")
            check = {"source check": str(card["SourceDestCheck"])}
            parts.append(self.part("network interface", card["NetworkInterfaceId"], attached, name, check))
        return {"instances": instances, "parts": parts, "ever": len(ever)}

    def id_of(self, instance):
        return f"aws:///{self.REGION}/{instance}"

    def part(self, kind, identity, attached, machine, marks):
        instance = self.id_of(attached[0]) if attached else None
        return {"kind": kind, "id": identity, "machine": machine, "instance": instance, "marks": marks}


def tags_of(one):
    return {tag["Key"]: tag["Value"] for tag in one.get("Tags", [])}


class OpenStack:
    """Servers of Nova, and the port and the root volume of each one."""

    PODS = "100.96.0.0/11"
    TAGS = {f"kubernetes.io-cluster-{CLUSTER}": "1", "kubernetes.io-role-node": "1", "pool": "worker"}
    SECOND_FLAVOR = "takeover"

    def __init__(self, path):
        import openstack

        with open(path) as file:
            self.described = json.load(file)

        def connect(user, password, project):
            return openstack.connect(
                auth_url=self.described["authURL"],
                username=self.described[user],
                password=self.described[password],
                project_name=self.described[project],
                user_domain_id="default",
                project_domain_id="default",
                region_name=self.described["region"],
            )

        self.user = connect("username", "password", "project")
        self.administrator = connect("adminUsername", "adminPassword", "adminProject")
        # Servers that existed before.
        self.before = self.deleted()

    def deleted(self):
        servers = self.administrator.compute.servers(details=False, all_projects=True, deleted=True)
        return sum(1 for _ in servers)

    def prepare(self):
        described = self.described
        self.administrator.compute.create_flavor(name=self.SECOND_FLAVOR, vcpus=1, ram=512, disk=2)
        spec = {
            "region": described["region"],
            "availabilityZone": described["availabilityZone"],
            "flavorName": described["flavorName"],
            "imageID": described["imageID"],
            "keyName": described["keyName"],
            "securityGroups": [described["securityGroup"]],
            "networkID": described["networkID"],
            "subnetIDs": [described["subnetID"]],
            "podNetworkCIDRs": [self.PODS],
            "rootDiskSize": 1,
            "rootDiskType": described["volumeType"],
            "tags": self.TAGS,
        }

        def class_of(flavor):
            return {
                "apiVersion": "openstack.machine.gardener.cloud/v1alpha1",
                "kind": "MachineProviderConfig",
                "spec": spec | {"flavorName": flavor},
            }

        flavors = [described["flavorName"], self.SECOND_FLAVOR]
        return {
            "provider": "OpenStack",
            "classes": [class_of(flavor) for flavor in flavors],
            "types": flavors,
            "secret": {
                "authURL": described["authURL"],
                "username": described["username"],
                "password": described["password"],
                "domainName": described["domain"],
                "tenantName": described["project"],
                "userData": USER_DATA,
            },
            "marks": {
                "instance": self.TAGS,
                "volume": self.TAGS,
                "port": {tag: "" for tag in self.TAGS if tag != "pool"} | {"pairs": self.PODS},
            },
        }

    def list(self):
        servers = list(self.user.compute.servers())
        instances = [
            {
                "id": self.id_of(server.id),
                "machine": server.name,
                "node": server.name,
                "nodeId": f"openstack:///{server.id}",
                "runs": server.status == "ACTIVE",
                "type": server.flavor.original_name or server.flavor.name,
                "marks": server.metadata,
            }
            for server in servers
        ]
        parts = []
        for port in self.user.network.ports(project_id=self.described["projectID"]):
            pairs = sorted(pair["ip_address"] for pair in port.allowed_address_pairs)
            marks = {tag: "" for tag in port.tags} | {"pairs": " ".join(pairs)}
            parts.append(self.part("port", port, port.device_id, marks))
        for volume in self.user.block_storage.volumes():
            attached = [attachment["server_id"] for attachment in volume.attachments]
            parts.append(self.part("volume", volume, attached[0] if attached else None, volume.metadata))
        ever = len(servers) + self.deleted() - self.before
        return {"instances": instances, "parts": parts, "ever": ever}

    def id_of(self, server):
        return f"openstack:///{self.described['region']}/{server}"

    def part(self, kind, one, server, marks):
        instance = self.id_of(server) if server else None
        return {"kind": kind, "id": one.id, "machine": one.name, "instance": instance, "marks": marks}


CLOUDS = {"hcloud": Hcloud, "aws": Aws, "openstack": OpenStack}


def main():
    cloud, *arguments = sys.argv[1:]
    observed = CLOUDS[cloud](*arguments)
    for line in sys.stdin:
        answer = {"prepare": observed.prepare, "list": observed.list}[line.strip()]()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
