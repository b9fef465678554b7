"""Uses the control plane with openstacksdk, a client that the driver did not write.

    client.py register LANE          registers the services, and creates a project with a user
    client.py create LANE OUTPUT     creates all that a server needs, and describes it in OUTPUT
    client.py check OUTPUT           expects the states and errors that the driver has to handle
    client.py left OUTPUT            prints the servers, ports and volumes of the project

LANE and OUTPUT are JSON files. LANE has the URLs of the services and the administrator's password.
"""

import json
import sys
import time

import openstack

# Types of the services in the catalog.
TYPES = {
    "keystone": "identity",
    "placement": "placement",
    "glance": "image",
    "nova": "compute",
    "neutron": "network",
    "cinder": "block-storage",
}
PATHS = {"keystone": "/v3", "nova": "/v2.1", "cinder": "/v3"}

# Name of the project, of its user, and of everything that the project has.
NAME = "machinist"
# No test logs in to a server, because none runs: the compute driver is a fake.
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIFYdYCRIOG1xvJGZpTWG5KqhKRGCKjq+8yJAbXkTTZu lane"

MANY = 500
WITHIN_SECONDS = 180


def connect(url, user, password, project, region, **options):
    return openstack.connect(
        auth_url=url,
        username=user,
        password=password,
        project_name=project,
        user_domain_id="default",
        project_domain_id="default",
        region_name=region,
        **options,
    )


def administrator_of(lane, **options):
    return connect(lane["keystone"] + "/v3", "admin", lane["adminPassword"], "admin", lane["region"], **options)


def user_of(output):
    return connect(output["authURL"], output["username"], output["password"], output["project"], output["region"])


def eventually(what, ask):
    """Asks until the answer is true. The services start while this program runs."""
    deadline = time.monotonic() + WITHIN_SECONDS
    while True:
        try:
            if answer := ask():
                return answer
            problem = "not yet"
        except openstack.exceptions.SDKException as error:
            problem = error
        if time.monotonic() > deadline:
            sys.exit(f"{what}: {problem}")
        time.sleep(0.5)


def register(lane):
    # Until the catalog exists, the client has to know where keystone is.
    identity = administrator_of(lane, identity_endpoint_override=lane["keystone"] + "/v3").identity
    for service, kind in TYPES.items():
        entry = next(identity.services(type=kind), None) or identity.create_service(type=kind, name=service)
        url = lane[service] + PATHS.get(service, "")
        for interface in ["public", "internal"]:
            identity.create_endpoint(service_id=entry.id, interface=interface, url=url, region_id=lane["region"])
    roles = {role.name: role.id for role in identity.roles()}
    for name, granted in [("service", ["admin", "service"]), (NAME, ["member"])]:
        project = identity.create_project(name=name, domain_id="default")
        user = identity.create_user(name=name, password=name, domain_id="default")
        for role in granted:
            identity.assign_project_role_to_user(project.id, user.id, roles[role])


def create(lane):
    administrator = administrator_of(lane)
    user = connect(lane["keystone"] + "/v3", NAME, NAME, NAME, lane["region"])
    output = {
        "authURL": lane["keystone"] + "/v3",
        "region": lane["region"],
        "username": NAME,
        "password": NAME,
        "project": NAME,
        "projectID": user.current_project_id,
        "domain": "Default",
        "domainID": "default",
        "adminUsername": "admin",
        "adminPassword": lane["adminPassword"],
        "adminProject": "admin",
        "availabilityZone": "nova",
        "tokenSeconds": lane["tokenSeconds"],
        "pidFiles": lane["pidFiles"],
        "python": sys.executable,
    }
    credential = user.identity.create_application_credential(user.current_user_id, name=NAME)
    output["applicationCredentialID"] = credential.id
    output["applicationCredentialName"] = credential.name
    output["applicationCredentialSecret"] = credential.secret
    # The first call to each service waits until that service is up.
    image = eventually(
        "image",
        lambda: user.image.create_image(NAME, container_format="bare", disk_format="raw", data=b"machinist"),
    )
    output["imageID"], output["imageName"] = image.id, image.name
    network = eventually("network", lambda: user.network.create_network(name=NAME))
    output["networkID"], output["networkName"] = network.id, network.name
    subnet = user.network.create_subnet(
        name=NAME, network_id=network.id, ip_version=4, cidr="10.250.0.0/16", enable_dhcp=False
    )
    output["subnetID"] = subnet.id
    output["securityGroup"] = user.network.create_security_group(name=NAME).name
    storage = administrator.block_storage
    output["volumeType"] = eventually("volume type", lambda: storage.create_type(name=NAME)).name
    storage.update_quota_set(output["projectID"], volumes=MANY, gigabytes=MANY * 100)
    compute = administrator.compute
    flavor = eventually("flavor", lambda: compute.create_flavor(name=NAME, vcpus=1, ram=512, disk=1))
    output["flavorName"] = flavor.name
    # The host has 600 TB. No quota counts the disks of flavors, so the scheduler refuses this one.
    large = compute.create_flavor(name="too-large", vcpus=1, ram=512, disk=1_000_000)
    output["tooLargeFlavorName"] = large.name
    compute.update_quota_set(
        output["projectID"], instances=MANY, cores=MANY, ram=MANY * 512, server_group_members=MANY
    )
    output["keyName"] = user.compute.create_keypair(name=NAME, type="ssh", public_key=PUBLIC_KEY).name
    group = user.compute.create_server_group(name=NAME, policy="soft-anti-affinity")
    output["serverGroupID"] = group.id
    eventually("compute host", lambda: is_up(compute, "nova-compute") and list(compute.hypervisors()))
    eventually("volume host", lambda: is_up(storage, "cinder-volume"))
    # A service that is up may not yet have reported its capacity.
    check_volume(user, output)
    check_server(user, output)
    return output


def is_up(api, name):
    return any(service.binary == name and service.state == "up" for service in api.services())


def check_volume(user, output):
    volume = eventually("volume", lambda: volume_or_none(user, output))
    user.block_storage.delete_volume(volume)
    user.block_storage.wait_for_delete(volume, interval=0.5)


def volume_or_none(user, output):
    volume = user.block_storage.create_volume(name=NAME, size=1, volume_type=output["volumeType"])
    try:
        return user.block_storage.wait_for_status(volume, "available", interval=0.5)
    except openstack.exceptions.ResourceFailure:
        user.block_storage.delete_volume(volume)
        return None


def check_server(user, output):
    server = eventually("server", lambda: server_or_none(user, output))
    delete(user, server)


def server_or_none(user, output):
    server = create_server(user, output, networks=[{"uuid": output["networkID"]}])
    try:
        return user.compute.wait_for_server(server, interval=0.5)
    except openstack.exceptions.ResourceFailure:
        delete(user, server)
        return None


def create_server(user, output, flavor="flavorName", **options):
    found = user.compute.find_flavor(output[flavor])
    if "block_device_mapping" not in options:
        options["image_id"] = output["imageID"]
    return user.compute.create_server(
        name="check",
        flavor_id=found.id,
        key_name=output["keyName"],
        availability_zone=output["availabilityZone"],
        **options,
    )


def delete(user, server):
    user.compute.delete_server(server)
    user.compute.wait_for_delete(server, interval=0.5)


def expect(what, actual, expected):
    if actual != expected:
        sys.exit(f"{what}: expected {expected!r}, got {actual!r}")
    print(f"ok {what}: {actual!r}")


def check(output):
    user = user_of(output)
    port = user.network.create_port(
        name="check", network_id=output["networkID"], fixed_ips=[{"subnet_id": output["subnetID"]}]
    )
    user.network.set_tags(port, ["first", "second"])
    own = create_server(user, output, networks=[{"port": port.id}])
    own = user.compute.wait_for_server(own, interval=0.5)
    expect("server with a port", own.status, "ACTIVE")
    second = {"networks": [{"port": port.id}]}
    refused("second server with that port", "still in use", lambda: create_server(user, output, **second))
    pairs = [{"ip_address": "100.64.0.0/12"}]
    user.network.update_port(port, allowed_address_pairs=pairs)
    port = user.network.get_port(port.id)
    expect("tags", sorted(port.tags), ["first", "second"])
    expect("address pairs", [pair["ip_address"] for pair in port.allowed_address_pairs], ["100.64.0.0/12"])

    volume = user.block_storage.create_volume(
        name="check", size=5, image_id=output["imageID"], volume_type=output["volumeType"]
    )
    user.block_storage.wait_for_status(volume, "available", interval=0.5)
    disk = {"uuid": volume.id, "source_type": "volume", "destination_type": "volume", "boot_index": 0}
    network = [{"uuid": output["networkID"]}]
    booted = create_server(user, output, networks=network, block_device_mapping=[disk])
    booted = user.compute.wait_for_server(booted, interval=0.5)
    expect("volume of a server", user.block_storage.get_volume(volume.id).status, "in-use")

    large = create_server(user, output, flavor="tooLargeFlavorName", networks=network)
    try:
        user.compute.wait_for_server(large, interval=0.5)
    except openstack.exceptions.ResourceFailure:
        pass
    large = user.compute.get_server(large.id)
    expect("server that fits nowhere", large.status, "ERROR")
    expect("reason", large.fault["message"].strip(), "No valid host was found.")

    for server in [own, booted, large]:
        delete(user, server)
    user.network.delete_port(port)
    user.block_storage.wait_for_status(volume, "available", interval=0.5)
    user.block_storage.delete_volume(volume)
    user.block_storage.wait_for_delete(volume, interval=0.5)
    administrator = connect(
        output["authURL"], output["adminUsername"], output["adminPassword"], output["adminProject"], output["region"]
    )
    administrator.compute.update_quota_set(output["projectID"], instances=0)
    refused("server above the quota", "Quota exceeded", lambda: create_server(user, output, networks=network))
    administrator.compute.update_quota_set(output["projectID"], instances=MANY)
    expect("servers, ports and volumes that are left", left(output), [])


def refused(what, expected, call):
    try:
        call()
    except openstack.exceptions.HttpException as error:
        if expected in str(error):
            print(f"ok {what}: {error.status_code} {error.details}")
            return
        sys.exit(f"{what}: expected {expected!r}, got {error}")
    sys.exit(f"{what}: expected {expected!r}, and the call succeeded")


def left(output):
    user = user_of(output)
    resources = {
        "server": user.compute.servers(),
        "port": user.network.ports(),
        "volume": user.block_storage.volumes(),
    }
    return [f"{kind} {found.name} {found.id}" for kind, listed in resources.items() for found in listed]


def read(path):
    with open(path) as file:
        return json.load(file)


def main():
    match sys.argv[1:]:
        case ["register", lane]:
            register(read(lane))
        case ["create", lane, path]:
            output = create(read(lane))
            with open(path, "w") as file:
                json.dump(output, file)
        case ["check", output]:
            check(read(output))
        case ["left", output]:
            print("\n".join(left(read(output))))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
