// Uses the stand-in for the Hetzner Cloud API with the official Go library, which
// hcloud-cloud-controller-manager and the hcloud command use, too.
//
// Prints one line per call. The first difference ends the program with an error.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"reflect"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

const servers = 55

var ctx = context.Background()

func clientFor(token string) *hcloud.Client {
	return hcloud.NewClient(
		hcloud.WithToken(token),
		hcloud.WithEndpoint(os.Getenv("HCLOUD_ENDPOINT")),
		hcloud.WithApplication("machinist-check", "1"),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(50 * time.Millisecond)}),
	)
}

func fail(call string, err error) {
	if err != nil {
		fmt.Printf("FAILED %s: %v\n", call, err)
		os.Exit(1)
	}
}

func check(call string, actual, expected any) {
	if !reflect.DeepEqual(actual, expected) {
		fmt.Printf("FAILED %s: expected %v, got %v\n", call, expected, actual)
		os.Exit(1)
	}
	fmt.Printf("ok %s: %v\n", call, actual)
}

func checkError(call string, err error, code hcloud.ErrorCode) {
	check(call, hcloud.IsError(err, code), true)
}

func network(text string) *net.IPNet {
	_, network, err := net.ParseCIDR(text)
	fail(text, err)
	return network
}

func wait(client *hcloud.Client, call string, action *hcloud.Action, err error) {
	fail(call, err)
	fail(call, client.Action.WaitFor(ctx, action))
	fmt.Printf("ok %s: action %s\n", call, action.Command)
}

func main() {
	client := clientFor("stand-in")
	locations, err := client.Location.All(ctx)
	fail("Location.All", err)
	check("Location.All", len(locations), 6)

	opts := hcloud.ServerCreateOpts{
		ServerType: &hcloud.ServerType{Name: "cx22"},
		Image:      &hcloud.Image{Name: "ubuntu-24.04"},
		Location:   &hcloud.Location{Name: "hel1"},
		Labels:     map[string]string{"client": "go"},
		UserData:   "#cloud-config\n",
	}
	for index := range servers {
		opts.Name = fmt.Sprintf("go-%d", index)
		result, _, err := client.Server.Create(ctx, opts)
		fail("Server.Create", err)
		if index == 0 {
			check("Server.Create", result.Server.Status, hcloud.ServerStatusInitializing)
			fail("Action.WaitFor", client.Action.WaitFor(ctx, append(result.NextActions, result.Action)...))
		}
	}
	all, err := client.Server.All(ctx)
	fail("Server.All", err)
	check("Server.All over two pages", len(all), servers)
	page, response, err := client.Server.List(ctx, hcloud.ServerListOpts{ListOpts: hcloud.ListOpts{Page: 2, PerPage: 50}})
	fail("Server.List", err)
	check("Server.List of page 2", []int{len(page), response.Meta.Pagination.TotalEntries}, []int{5, servers})
	check("rate limit of the reply", response.Meta.Ratelimit.Limit, 3600)
	server, _, err := client.Server.GetByName(ctx, "go-0")
	fail("Server.GetByName", err)
	check("Server.GetByName", server.Status, hcloud.ServerStatusRunning)
	server, _, err = client.Server.GetByID(ctx, server.ID)
	fail("Server.GetByID", err)
	check("Server.GetByID", server.Location.Name, "hel1")
	nothing, _, err := client.Server.GetByID(ctx, 1)
	fail("Server.GetByID of nothing", err)
	check("Server.GetByID of nothing", nothing == nil, true)
	_, _, err = client.Server.Create(ctx, opts)
	checkError("Server.Create of a used name", err, hcloud.ErrorCodeUniquenessError)
	bad := opts
	bad.Name, bad.ServerType = "bad", &hcloud.ServerType{Name: "cx1000"}
	_, _, err = client.Server.Create(ctx, bad)
	checkError("Server.Create of an unknown type", err, hcloud.ErrorCodeInvalidInput)
	server, _, err = client.Server.Update(ctx, server, hcloud.ServerUpdateOpts{Labels: map[string]string{"client": "go", "new": "1"}})
	fail("Server.Update", err)
	check("Server.Update", server.Labels["new"], "1")
	action, _, err := client.Server.Poweroff(ctx, server)
	wait(client, "Server.Poweroff", action, err)
	action, _, err = client.Server.Poweron(ctx, server)
	wait(client, "Server.Poweron", action, err)

	created, _, err := client.Network.Create(ctx, hcloud.NetworkCreateOpts{
		Name:    "go",
		IPRange: network("10.0.0.0/8"),
		Subnets: []hcloud.NetworkSubnet{{
			Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: hcloud.NetworkZoneEUCentral, IPRange: network("10.0.0.0/24"),
		}},
	})
	fail("Network.Create", err)
	action, _, err = client.Server.AttachToNetwork(ctx, server, hcloud.ServerAttachToNetworkOpts{Network: created})
	wait(client, "Server.AttachToNetwork", action, err)
	server, _, err = client.Server.GetByID(ctx, server.ID)
	fail("Server.GetByID", err)
	check("private address", server.PrivateNet[0].IP.String(), "10.0.0.2")
	route := hcloud.NetworkRoute{Destination: network("10.244.1.0/24"), Gateway: server.PrivateNet[0].IP}
	action, _, err = client.Network.AddRoute(ctx, created, hcloud.NetworkAddRouteOpts{Route: route})
	wait(client, "Network.AddRoute", action, err)
	_, _, err = client.Network.AddRoute(ctx, created, hcloud.NetworkAddRouteOpts{Route: route})
	checkError("Network.AddRoute again", err, hcloud.ErrorCodeInvalidInput)
	created, _, err = client.Network.GetByName(ctx, "go")
	fail("Network.GetByName", err)
	check("Network.GetByName", created.Routes[0].Destination.String(), "10.244.1.0/24")
	action, _, err = client.Network.DeleteRoute(ctx, created, hcloud.NetworkDeleteRouteOpts{Route: route})
	wait(client, "Network.DeleteRoute", action, err)

	lb, _, err := client.LoadBalancer.Create(ctx, hcloud.LoadBalancerCreateOpts{
		Name:             "go",
		LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"},
		NetworkZone:      hcloud.NetworkZoneEUCentral,
		Labels:           map[string]string{"hcloud-ccm/service-uid": "go"},
		Network:          created,
		Services: []hcloud.LoadBalancerCreateOptsService{{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: hcloud.Ptr(80), DestinationPort: hcloud.Ptr(30080),
		}},
		Targets: []hcloud.LoadBalancerCreateOptsTarget{{
			Type: hcloud.LoadBalancerTargetTypeServer, UsePrivateIP: hcloud.Ptr(true),
			Server: hcloud.LoadBalancerCreateOptsTargetServer{Server: server},
		}},
	})
	wait(client, "LoadBalancer.Create with services and targets", lb.Action, err)
	found, err := client.LoadBalancer.AllWithOpts(ctx, hcloud.LoadBalancerListOpts{
		ListOpts: hcloud.ListOpts{LabelSelector: "hcloud-ccm/service-uid=go"},
	})
	fail("LoadBalancer.AllWithOpts", err)
	check("LoadBalancer.AllWithOpts by label", len(found), 1)
	balancer := found[0]
	check("health of the target", balancer.Targets[0].HealthStatus[0].Status, hcloud.LoadBalancerTargetHealthStatusStatusHealthy)
	_, _, err = client.LoadBalancer.AddService(ctx, balancer, hcloud.LoadBalancerAddServiceOpts{
		Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: hcloud.Ptr(80), DestinationPort: hcloud.Ptr(30080),
	})
	checkError("LoadBalancer.AddService again", err, hcloud.ErrorCodeSourcePortAlreadyUsed)
	action, _, err = client.LoadBalancer.UpdateService(ctx, balancer, 80, hcloud.LoadBalancerUpdateServiceOpts{DestinationPort: hcloud.Ptr(30090)})
	wait(client, "LoadBalancer.UpdateService", action, err)
	_, _, err = client.LoadBalancer.AddServerTarget(ctx, balancer, hcloud.LoadBalancerAddServerTargetOpts{Server: server})
	checkError("LoadBalancer.AddServerTarget again", err, hcloud.ErrorCodeTargetAlreadyDefined)
	action, _, err = client.LoadBalancer.RemoveServerTarget(ctx, balancer, server)
	wait(client, "LoadBalancer.RemoveServerTarget", action, err)
	action, _, err = client.LoadBalancer.ChangeProtection(ctx, balancer, hcloud.LoadBalancerChangeProtectionOpts{Delete: hcloud.Ptr(true)})
	wait(client, "LoadBalancer.ChangeProtection", action, err)
	_, err = client.LoadBalancer.Delete(ctx, balancer)
	checkError("LoadBalancer.Delete of a protected one", err, hcloud.ErrorCodeProtected)
	action, _, err = client.LoadBalancer.ChangeProtection(ctx, balancer, hcloud.LoadBalancerChangeProtectionOpts{Delete: hcloud.Ptr(false)})
	wait(client, "LoadBalancer.ChangeProtection", action, err)
	_, err = client.LoadBalancer.Delete(ctx, balancer)
	fail("LoadBalancer.Delete", err)
	fmt.Println("ok LoadBalancer.Delete")

	_, err = clientFor("unknown").Server.All(ctx)
	checkError("Server.All with an unknown token", err, hcloud.ErrorCodeUnauthorized)
	nothing, _, err = clientFor("other").Server.GetByID(ctx, server.ID)
	check("Server.GetByID from another project", nothing == nil && err == nil, true)
	_, _, err = clientFor("read-only").Server.Create(ctx, opts)
	checkError("Server.Create with a read-only token", err, hcloud.ErrorCode("token_readonly"))

	for _, server := range all {
		result, _, err := client.Server.DeleteWithResult(ctx, server)
		fail("Server.DeleteWithResult", err)
		fail("Action.WaitFor", client.Action.WaitFor(ctx, result.Action))
	}
	all, err = client.Server.All(ctx)
	fail("Server.All", err)
	check("Server.DeleteWithResult of all", len(all), 0)
	for range 50 {
		// The load balancer leaves the network when its deletion ends.
		if _, err = client.Network.Delete(ctx, created); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	fail("Network.Delete", err)
	fmt.Println("ok Network.Delete")
}
