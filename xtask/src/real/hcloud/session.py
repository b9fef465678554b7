"""Uses the stand-in for the Hetzner Cloud API with the official Python client.

Prints one line per call. The first difference ends the program with an error.
"""

import os

from hcloud import APIException, Client
from hcloud.images import Image
from hcloud.load_balancer_types import LoadBalancerType
from hcloud.load_balancers import (
    LoadBalancerAlgorithm,
    LoadBalancerHealthCheck,
    LoadBalancerService,
    LoadBalancerTarget,
)
from hcloud.locations import Location
from hcloud.networks import NetworkRoute, NetworkSubnet
from hcloud.server_types import ServerType

SERVERS = 55


def client_for(token):
    endpoint = os.environ["HCLOUD_ENDPOINT"]
    return Client(token=token, api_endpoint=endpoint, poll_interval=0.05)


def check(call, actual, expected):
    if actual != expected:
        raise SystemExit(f"FAILED {call}: expected {expected!r}, got {actual!r}")
    print(f"ok {call}: {actual!r}")


def check_error(call, code, request):
    try:
        request()
    except APIException as error:
        check(call, error.code, code)
        return error
    raise SystemExit(f"FAILED {call}: expected the error {code}, and there was none")


def servers(client):
    for index in range(SERVERS):
        reply = client.servers.create(
            name=f"py-{index}",
            server_type=ServerType(name="cx22"),
            image=Image(name="ubuntu-24.04"),
            location=Location(name="nbg1"),
            labels={"client": "python", "index": str(index)},
            user_data="#cloud-config\n",
        )
        if index == 0:
            check("servers.create", reply.server.status, "initializing")
            reply.action.wait_until_finished()
            for action in reply.next_actions:
                action.wait_until_finished()
            check("action.wait_until_finished", action.command, "start_server")
    first = client.servers.get_by_name("py-0")
    check("servers.get_by_name", (first.status, first.server_type.name, first.location.name), ("running", "cx22", "nbg1"))
    check("servers.get_by_id", client.servers.get_by_id(first.id).name, "py-0")
    check("server.id is above 32 bits", first.id > 2**32, True)
    check("servers.get_all over two pages", len(client.servers.get_all()), SERVERS)
    page = client.servers.get_list(page=2, per_page=50)
    check("servers.get_list(page=2)", (len(page.servers), page.meta.pagination.total_entries, page.meta.pagination.next_page), (5, SERVERS, None))
    selected = client.servers.get_all(label_selector="client=python,index in (3,4)")
    check("servers.get_all(label_selector)", [it.name for it in selected], ["py-3", "py-4"])
    check("servers.get_by_name of nothing", client.servers.get_by_name("nothing"), None)

    updated = first.update(name="py-renamed", labels={"client": "python"})
    check("server.update", (updated.name, updated.labels), ("py-renamed", {"client": "python"}))
    first.power_off().wait_until_finished()
    first.reload()
    check("server.power_off", first.status, "off")
    first.change_type(ServerType(name="cx32"), upgrade_disk=False).wait_until_finished()
    first.reload()
    check("server.change_type", first.server_type.name, "cx32")
    first.power_on().wait_until_finished()
    first.reload()
    check("server.power_on", first.status, "running")
    first.change_protection(delete=True, rebuild=True).wait_until_finished()
    check_error("server.delete of a protected server", "protected", first.delete)
    first.change_protection(delete=False, rebuild=False).wait_until_finished()
    check("server.get_actions", {it.command for it in first.get_actions()} >= {"create_server", "stop_server"}, True)
    return first


def networks(client, server):
    network = client.networks.create(
        name="py",
        ip_range="10.0.0.0/8",
        subnets=[NetworkSubnet(type="cloud", network_zone="eu-central", ip_range="10.0.0.0/24")],
    )
    check("networks.create", [it.gateway for it in network.subnets], ["10.0.0.1"])
    network.add_subnet(NetworkSubnet(type="cloud", network_zone="us-east", ip_range="10.1.0.0/24")).wait_until_finished()
    server.attach_to_network(network).wait_until_finished()
    server.reload()
    ip = server.private_net[0].ip
    check("server.attach_to_network", ip, "10.0.0.2")
    route = NetworkRoute(destination="10.244.0.0/24", gateway=ip)
    network.add_route(route).wait_until_finished()
    network.reload()
    check("network.add_route", [(it.destination, it.gateway) for it in network.routes], [("10.244.0.0/24", ip)])
    error = check_error("network.add_route again", "invalid_input", lambda: network.add_route(route))
    check("details of invalid_input", error.details["fields"][0]["name"], "destination")
    check_error(
        "network.delete_route of nothing",
        "not_found",
        lambda: network.delete_route(NetworkRoute(destination="10.244.9.0/24", gateway=ip)),
    )
    network.delete_route(route).wait_until_finished()
    network.reload()
    check("network.delete_route", network.routes, [])
    check("network.servers", [it.id for it in network.servers], [server.id])
    return network


def load_balancers(client, server, network):
    created = client.load_balancers.create(
        name="py",
        load_balancer_type=LoadBalancerType(name="lb11"),
        location=Location(name="nbg1"),
        algorithm=LoadBalancerAlgorithm(type="round_robin"),
        labels={"hcloud-ccm/service-uid": "python"},
        network=network,
    )
    created.action.wait_until_finished()
    balancer = client.load_balancers.get_by_id(created.load_balancer.id)
    check("load_balancers.create", balancer.private_net[0].ip, "10.0.0.3")
    health_check = LoadBalancerHealthCheck(protocol="tcp", port=30080, interval=5, timeout=3, retries=3)
    service = LoadBalancerService(
        protocol="tcp", listen_port=80, destination_port=30080, proxyprotocol=False, health_check=health_check
    )
    balancer.add_service(service).wait_until_finished()
    check_error("load_balancer.add_service again", "source_port_already_used", lambda: balancer.add_service(service))
    service.destination_port = 30090
    balancer.update_service(service).wait_until_finished()
    target = LoadBalancerTarget(type="server", server=server, use_private_ip=True)
    balancer.add_target(target).wait_until_finished()
    check_error("load_balancer.add_target again", "target_already_defined", lambda: balancer.add_target(target))
    balancer.change_algorithm(LoadBalancerAlgorithm(type="least_connections")).wait_until_finished()
    balancer.change_type(LoadBalancerType(name="lb21")).wait_until_finished()
    balancer.disable_public_interface().wait_until_finished()
    balancer.reload()
    check("load_balancer.update_service", balancer.services[0].destination_port, 30090)
    check("load_balancer.add_target", [it.server.id for it in balancer.targets], [server.id])
    check("load_balancer.change_algorithm", balancer.algorithm.type, "least_connections")
    check("load_balancer.change_type", balancer.load_balancer_type.max_services, 15)
    check("load_balancer.disable_public_interface", balancer.public_net.enabled, False)
    found = client.load_balancers.get_all(label_selector="hcloud-ccm/service-uid=python")
    check("load_balancers.get_all(label_selector)", [it.name for it in found], ["py"])
    balancer.remove_target(target).wait_until_finished()
    balancer.delete_service(service).wait_until_finished()
    balancer.detach_from_network(network).wait_until_finished()
    balancer.reload()
    check("load_balancer after removals", (balancer.services, balancer.targets, balancer.private_net), ([], [], []))
    balancer.delete().action.wait_until_finished()
    check("load_balancer.delete", client.load_balancers.get_by_name("py"), None)

    certificate = client.certificates.create_managed(name="py", domain_names=["example.org"])
    certificate.action.wait_until_finished()
    certificate = client.certificates.get_by_name("py")
    check("certificates.create_managed", certificate.status.issuance, "completed")
    check("certificate.delete", certificate.delete(), True)


def errors(client, server):
    new = {"server_type": ServerType(name="cx22"), "image": Image(name="ubuntu-24.04")}
    check_error("servers.create of a used name", "uniqueness_error", lambda: client.servers.create(name="py-1", **new))
    check_error("servers.get_by_id of nothing", "not_found", lambda: client.servers.get_by_id(1))
    unknown = {"server_type": ServerType(name="cx1000"), "image": Image(name="ubuntu-24.04")}
    check_error("servers.create of an unknown type", "invalid_input", lambda: client.servers.create(name="x", **unknown))
    check_error("servers.create, read-only", "token_readonly", lambda: client_for("read-only").servers.create(name="x", **new))
    check("servers.get_by_id, read-only", client_for("read-only").servers.get_by_id(server.id).id, server.id)
    check_error("servers.get_by_id, other project", "not_found", lambda: client_for("other").servers.get_by_id(server.id))
    check_error("servers.get_all, unknown token", "unauthorized", client_for("unknown").servers.get_all)


def main():
    client = client_for("stand-in")
    check("locations.get_all", len(client.locations.get_all()), 6)
    check("load_balancer_types.get_by_name", client.load_balancer_types.get_by_name("lb31").max_targets, 150)
    image = client.images.get_by_name_and_architecture("ubuntu-24.04", "arm")
    check("images.get_by_name_and_architecture", image.architecture, "arm")
    server = servers(client)
    network = networks(client, server)
    load_balancers(client, server, network)
    errors(client, server)
    for action in [it.delete() for it in client.servers.get_all(label_selector="client=python")]:
        action.wait_until_finished()
    check("server.delete of all", len(client.servers.get_all()), 0)
    check("network.delete", network.delete(), True)


main()
