package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
	corev1 "k8s.io/api/core/v1"
)

// hcloud creates servers of Hetzner Cloud as the provider of 23technologies does: found by name,
// created without power, then given a floating address, then switched on. It departs from that
// provider in two points, because the API does not have what that provider uses: the server is
// created in the location of the zone, and not in its data center, and a floating address needs no
// placement group.
type hcloud struct {
	unimplemented
	endpoint string
}

// hcloudClass has the fields of a class. Go matches their names in any letter case.
type hcloudClass struct {
	Cluster          string
	Zone             string
	ServerType       string
	ImageName        string
	SSHFingerprint   string
	NetworkName      string
	FloatingPoolName string
}

type hcloudObject struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

const (
	hcloudCluster = "mcm.gardener.cloud/cluster"
	hcloudRole    = "mcm.gardener.cloud/role"
	hcloudPool    = "networking.hcloud.mcm.gardener.cloud/floating-pool"
	hcloudRegion  = "topology.kubernetes.io/region"
	hcloudZone    = "topology.kubernetes.io/zone"

	// That provider looks five times, every five seconds, whether the actions of a server ended.
	actionLooks     = 5
	actionLookEvery = 5 * time.Second
)

// hcloudCall has all that the requests of one call of the driver need.
type hcloudCall struct {
	ctx      context.Context
	endpoint string
	token    string
	class    hcloudClass
	userData []byte
}

func (h *hcloud) begin(ctx context.Context, class *v1alpha1.MachineClass, secret *corev1.Secret) (*hcloudCall, error) {
	call := &hcloudCall{ctx: ctx, endpoint: h.endpoint, userData: secret.Data["userData"]}
	call.token = strings.TrimSpace(string(secret.Data["token"]))
	if err := json.Unmarshal(class.ProviderSpec.Raw, &call.class); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return call, nil
}

func (c *hcloudCall) send(method, path string, body, answer any) error {
	header := http.Header{"Authorization": {"Bearer " + c.token}}
	_, err := sendJSON(c.ctx, method, c.endpoint+path, header, body, answer)
	return err
}

// named finds the first object of a list. Its id is 0 if there is none.
func (c *hcloudCall) named(kind, query, value string) (hcloudObject, error) {
	var answer map[string]json.RawMessage
	var found []hcloudObject
	path := fmt.Sprintf("/%s?%s=%s", kind, query, url.QueryEscape(value))
	if err := c.send(http.MethodGet, path, nil, &answer); err != nil {
		return hcloudObject{}, err
	}
	if err := json.Unmarshal(answer[kind], &found); err != nil || len(found) == 0 {
		return hcloudObject{}, err
	}
	return found[0], nil
}

// required finds an object that a class names.
func (c *hcloudCall) required(kind, query, value string) (int64, error) {
	found, err := c.named(kind, query, value)
	if err == nil && found.ID == 0 {
		err = status.Error(codes.InvalidArgument, fmt.Sprintf("no %s with the %s %q", kind, query, value))
	}
	return found.ID, asStatus(err, codes.InvalidArgument)
}

func (c *hcloudCall) labels() map[string]string {
	region, _, _ := strings.Cut(c.class.Zone, "-")
	return map[string]string{
		hcloudCluster: c.class.Cluster,
		hcloudRole:    "node",
		hcloudRegion:  region,
		hcloudZone:    c.class.Zone,
	}
}

func (c *hcloudCall) providerID(server int64) string {
	return fmt.Sprintf("hcloud:///%s/%d", url.PathEscape(c.class.Zone), server)
}

// serverOf returns the id of a Machine's server: the recorded one, or the one of its name. It is 0
// if there is none.
func (c *hcloudCall) serverOf(machine *v1alpha1.Machine) (int64, error) {
	if machine.Spec.ProviderID == "" {
		found, err := c.named("servers", "name", machine.Name)
		return found.ID, err
	}
	parsed, err := url.Parse(machine.Spec.ProviderID)
	if err != nil {
		return 0, err
	}
	// The provider ends with a panic if the path has fewer parts.
	return strconv.ParseInt(strings.Split(parsed.Path, "/")[2], 10, 64)
}

func (h *hcloud) GetMachineStatus(ctx context.Context, request *driver.GetMachineStatusRequest) (*driver.GetMachineStatusResponse, error) {
	call, err := h.begin(ctx, request.MachineClass, request.Secret)
	if err != nil {
		return nil, err
	}
	id, err := call.serverOf(request.Machine)
	if err != nil {
		return nil, asStatus(err, codes.Unavailable)
	}
	if request.Machine.Spec.ProviderID != "" {
		err = call.send(http.MethodGet, fmt.Sprintf("/servers/%d", id), nil, nil)
	} else if id == 0 {
		err = status.Error(codes.NotFound, "no server is called "+request.Machine.Name)
	}
	if err != nil {
		return nil, asStatus(err, codes.Unavailable)
	}
	return &driver.GetMachineStatusResponse{ProviderID: call.providerID(id), NodeName: request.Machine.Name}, nil
}

func (h *hcloud) CreateMachine(ctx context.Context, request *driver.CreateMachineRequest) (*driver.CreateMachineResponse, error) {
	call, err := h.begin(ctx, request.MachineClass, request.Secret)
	if err != nil {
		return nil, err
	}
	id, err := call.create(request.Machine.Name)
	if err != nil {
		// The provider deletes the server of that name after each failure.
		if found, lookup := call.named("servers", "name", request.Machine.Name); lookup == nil && found.ID != 0 {
			_ = call.send(http.MethodDelete, fmt.Sprintf("/servers/%d", found.ID), nil, nil)
		}
		return nil, asStatus(err, codes.Unavailable)
	}
	return &driver.CreateMachineResponse{ProviderID: call.providerID(id), NodeName: request.Machine.Name}, nil
}

func (c *hcloudCall) create(name string) (int64, error) {
	image, err := c.required("images", "name", c.class.ImageName)
	if err != nil {
		return 0, err
	}
	key, err := c.required("ssh_keys", "fingerprint", c.class.SSHFingerprint)
	if err != nil {
		return 0, err
	}
	body := map[string]any{
		"name":               name,
		"server_type":        c.class.ServerType,
		"image":              image,
		"ssh_keys":           []int64{key},
		"location":           c.labels()[hcloudRegion],
		"user_data":          base64.StdEncoding.EncodeToString(c.userData),
		"start_after_create": false,
		"labels":             c.labels(),
	}
	if c.class.NetworkName != "" {
		network, err := c.required("networks", "name", c.class.NetworkName)
		if err != nil {
			return 0, err
		}
		body["networks"] = []int64{network}
	}
	var created struct{ Server hcloudObject }
	if err := c.send(http.MethodPost, "/servers", body, &created); err != nil {
		return 0, err
	}
	server := created.Server.ID
	if err := c.awaitActions("servers", server); err != nil {
		return 0, err
	}
	if c.class.FloatingPoolName != "" {
		if err := c.createAddress(name, server); err != nil {
			return 0, err
		}
	}
	if err := c.send(http.MethodPost, fmt.Sprintf("/servers/%d/actions/poweron", server), nil, nil); err != nil {
		return 0, err
	}
	return server, c.awaitActions("servers", server)
}

func (c *hcloudCall) addressOf(server string) string {
	return fmt.Sprintf("%s-%s-ipv4", c.class.FloatingPoolName, server)
}

func (c *hcloudCall) createAddress(name string, server int64) error {
	body := map[string]any{
		"type":   "ipv4",
		"server": server,
		"name":   c.addressOf(name),
		"labels": map[string]string{hcloudCluster: c.class.Cluster, hcloudPool: c.class.FloatingPoolName},
	}
	var created struct {
		Address hcloudObject `json:"floating_ip"`
	}
	if err := c.send(http.MethodPost, "/floating_ips", body, &created); err != nil {
		return err
	}
	return c.awaitActions("floating_ips", created.Address.ID)
}

func (c *hcloudCall) awaitActions(kind string, id int64) error {
	for range actionLooks {
		var answer struct{ Actions []json.RawMessage }
		path := fmt.Sprintf("/%s/%d/actions?status=running", kind, id)
		if err := c.send(http.MethodGet, path, nil, &answer); err != nil || len(answer.Actions) == 0 {
			return err
		}
		if err := pause(c.ctx, actionLookEvery); err != nil {
			return err
		}
	}
	return status.Error(codes.Unknown, fmt.Sprintf("the actions of %s %d did not end", kind, id))
}

func (h *hcloud) DeleteMachine(ctx context.Context, request *driver.DeleteMachineRequest) (*driver.DeleteMachineResponse, error) {
	call, err := h.begin(ctx, request.MachineClass, request.Secret)
	if err != nil {
		return nil, err
	}
	return &driver.DeleteMachineResponse{}, asStatus(call.delete(request.Machine), codes.Unavailable)
}

// delete deletes a server, and then its floating address. The address stays if the server does not
// exist.
func (c *hcloudCall) delete(machine *v1alpha1.Machine) error {
	server, err := c.serverOf(machine)
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/servers/%d", server)
	if err := c.send(http.MethodGet, path, nil, nil); err != nil {
		return err
	}
	if err := c.send(http.MethodDelete, path, nil, nil); err != nil || c.class.FloatingPoolName == "" {
		return err
	}
	address, err := c.named("floating_ips", "name", c.addressOf(machine.Name))
	if err != nil || address.ID == 0 {
		return err
	}
	return c.send(http.MethodDelete, fmt.Sprintf("/floating_ips/%d", address.ID), nil, nil)
}

func (h *hcloud) ListMachines(ctx context.Context, request *driver.ListMachinesRequest) (*driver.ListMachinesResponse, error) {
	call, err := h.begin(ctx, request.MachineClass, request.Secret)
	if err != nil {
		return nil, err
	}
	selector := fmt.Sprintf("%s=%s,%s=node,%s=%s",
		hcloudCluster, call.class.Cluster, hcloudRole, hcloudZone, call.class.Zone)
	machines := map[string]string{}
	for page := 1; page != 0; {
		var answer struct {
			Servers []hcloudObject
			Meta    struct {
				Pagination struct {
					NextPage int `json:"next_page"`
				}
			}
		}
		path := fmt.Sprintf("/servers?label_selector=%s&page=%d&per_page=50", url.QueryEscape(selector), page)
		if err := call.send(http.MethodGet, path, nil, &answer); err != nil {
			return nil, asStatus(err, codes.Unavailable)
		}
		for _, server := range answer.Servers {
			machines[call.providerID(server.ID)] = server.Name
		}
		page = answer.Meta.Pagination.NextPage
	}
	return &driver.ListMachinesResponse{MachineList: machines}, nil
}
