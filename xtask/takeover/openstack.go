package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
	corev1 "k8s.io/api/core/v1"
)

// openstack creates servers of Nova as the provider of Gardener does: found by name and by the
// presence of two metadata keys, with a port and a root volume of the same name. Each call of the
// driver logs in.
type openstack struct {
	unimplemented
}

// openstackClass has the fields of a class that the lane uses.
type openstackClass struct {
	Spec struct {
		ImageID          string            `json:"imageID"`
		Region           string            `json:"region"`
		AvailabilityZone string            `json:"availabilityZone"`
		FlavorName       string            `json:"flavorName"`
		KeyName          string            `json:"keyName"`
		SecurityGroups   []string          `json:"securityGroups"`
		Tags             map[string]string `json:"tags"`
		NetworkID        string            `json:"networkID"`
		SubnetIDs        []string          `json:"subnetIDs"`
		PodNetworkCIDRs  []string          `json:"podNetworkCIDRs"`
		RootDiskSize     int               `json:"rootDiskSize"`
		RootDiskType     *string           `json:"rootDiskType"`
	} `json:"spec"`
}

// openstackObject is a server, port, volume, flavor or group.
type openstackObject struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Status   string            `json:"status"`
	Metadata map[string]string `json:"metadata"`
}

const (
	// The provider looks every ten seconds, for up to twenty minutes.
	stateLookEvery = 10 * time.Second
	stateLooks     = 120
)

// openstackCall has all that the requests of one call of the driver need.
type openstackCall struct {
	ctx      context.Context
	class    openstackClass
	userData []byte
	token    string
	// The URLs of the catalogue, by the type of the service.
	urls map[string]string
}

func (o *openstack) begin(ctx context.Context, class *v1alpha1.MachineClass, secret *corev1.Secret) (*openstackCall, error) {
	call := &openstackCall{ctx: ctx, userData: secret.Data["userData"], urls: map[string]string{}}
	if class.Provider != "OpenStack" {
		return nil, status.Error(codes.InvalidArgument, "the provider of the class is "+class.Provider)
	}
	if err := json.Unmarshal(class.ProviderSpec.Raw, &call.class); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return call, openstackStatus(call.logIn(secret))
}

func (c *openstackCall) logIn(secret *corev1.Secret) error {
	entry := func(name string) string { return strings.TrimSpace(string(secret.Data[name])) }
	domain := map[string]string{"name": entry("domainName")}
	user := map[string]any{"name": entry("username"), "password": entry("password"), "domain": domain}
	body := map[string]any{"auth": map[string]any{
		"identity": map[string]any{
			"methods":  []string{"password"},
			"password": map[string]any{"user": user},
		},
		"scope": map[string]any{"project": map[string]any{"name": entry("tenantName"), "domain": domain}},
	}}
	var answer struct {
		Token struct {
			Catalog []struct {
				Type      string
				Endpoints []struct{ Interface, Region, URL string }
			}
		}
	}
	header, err := sendJSON(c.ctx, http.MethodPost, entry("authURL")+"/auth/tokens", nil, body, &answer)
	if err != nil {
		return err
	}
	c.token = header.Get("X-Subject-Token")
	for _, service := range answer.Token.Catalog {
		for _, endpoint := range service.Endpoints {
			if endpoint.Interface == "public" && endpoint.Region == c.class.Spec.Region {
				c.urls[service.Type] = strings.TrimSuffix(endpoint.URL, "/")
			}
		}
	}
	// The catalogue has the URL of Neutron without a version.
	c.urls["network"] += "/v2.0"
	return nil
}

// send sends a request to a service: compute, network or block-storage.
func (c *openstackCall) send(service, method, path string, body, answer any) error {
	header := http.Header{"X-Auth-Token": {c.token}}
	_, err := sendJSON(c.ctx, method, c.urls[service]+path, header, body, answer)
	return err
}

// openstackStatus gives an error of a call the code of the provider.
func openstackStatus(err error) error {
	return asStatus(err, codes.Internal)
}

// listed returns the objects of a list.
func (c *openstackCall) listed(service, path, kind string) ([]openstackObject, error) {
	var answer map[string]json.RawMessage
	if err := c.send(service, http.MethodGet, path, nil, &answer); err != nil {
		return nil, err
	}
	var found []openstackObject
	return found, json.Unmarshal(answer[kind], &found)
}

// named returns the objects of that exact name. Nova treats a name as a regular expression.
func (c *openstackCall) named(service, path, kind, name string) ([]openstackObject, error) {
	found, err := c.listed(service, path+"?name="+url.QueryEscape(name), kind)
	return slices.DeleteFunc(found, func(one openstackObject) bool { return one.Name != name }), err
}

// marks returns the keys of the class for the cluster and the role.
func (c *openstackCall) marks() []string {
	var marks []string
	for key := range c.class.Spec.Tags {
		if strings.Contains(key, "kubernetes.io-cluster-") || strings.Contains(key, "kubernetes.io-role-") {
			marks = append(marks, key)
		}
	}
	slices.Sort(marks)
	return marks
}

// isOurs reports whether a server has both keys. Their values are not compared.
func (c *openstackCall) isOurs(server openstackObject) bool {
	for _, mark := range c.marks() {
		if _, has := server.Metadata[mark]; !has {
			return false
		}
	}
	return true
}

func (c *openstackCall) ours(servers []openstackObject) []openstackObject {
	return slices.DeleteFunc(servers, func(server openstackObject) bool { return !c.isOurs(server) })
}

// find finds the server of a Machine, by its id or else by its name.
func (c *openstackCall) find(machine *v1alpha1.Machine) (openstackObject, error) {
	var found []openstackObject
	if id := machine.Spec.ProviderID; id != "" {
		server, err := c.server(path.Base(id))
		if err != nil {
			return openstackObject{}, err
		}
		found = []openstackObject{server}
	} else {
		servers, err := c.named("compute", "/servers/detail", "servers", machine.Name)
		if err != nil {
			return openstackObject{}, err
		}
		found = servers
	}
	switch found = c.ours(found); len(found) {
	case 0:
		return openstackObject{}, status.Error(codes.NotFound, "no server is called "+machine.Name)
	case 1:
		return found[0], nil
	default:
		return openstackObject{}, status.Error(codes.OutOfRange, "several servers are called "+machine.Name)
	}
}

func (c *openstackCall) server(id string) (openstackObject, error) {
	var answer struct{ Server openstackObject }
	return answer.Server, c.send("compute", http.MethodGet, "/servers/"+id, nil, &answer)
}

func (c *openstackCall) providerID(server openstackObject) string {
	return fmt.Sprintf("openstack:///%s/%s", c.class.Spec.Region, server.ID)
}

// hasPort reports whether a server of the class has a port of its own.
func (c *openstackCall) hasPort() bool {
	return c.class.Spec.NetworkID != "" && len(c.class.Spec.SubnetIDs) > 0
}

// hasVolume reports whether a server of the class has a root volume of its own.
func (c *openstackCall) hasVolume() bool {
	return c.class.Spec.RootDiskType != nil && c.class.Spec.RootDiskSize > 0
}

// eventually looks again until the answer is true.
func (c *openstackCall) eventually(what string, isDone func() (bool, error)) error {
	for range stateLooks {
		if done, err := isDone(); done || err != nil {
			return err
		}
		if err := pause(c.ctx, stateLookEvery); err != nil {
			return err
		}
	}
	return status.Error(codes.Internal, "timed out: "+what)
}

func (o *openstack) GetMachineStatus(context.Context, *driver.GetMachineStatusRequest) (*driver.GetMachineStatusResponse, error) {
	return nil, status.Error(codes.Unimplemented, "the provider has no status of machines")
}

func (o *openstack) CreateMachine(ctx context.Context, request *driver.CreateMachineRequest) (*driver.CreateMachineResponse, error) {
	call, err := o.begin(ctx, request.MachineClass, request.Secret)
	if err != nil {
		return nil, err
	}
	server, err := call.find(request.Machine)
	if isNotFound(err) {
		server, err = call.create(request.Machine.Name)
	}
	if err == nil {
		err = call.finish(server)
	}
	if err != nil {
		// The provider deletes all that it made, in the same call.
		if cleanUp := call.delete(request.Machine); cleanUp != nil {
			err = fmt.Errorf("%w; and the deletion failed: %w", err, cleanUp)
		}
		return nil, openstackStatus(err)
	}
	return &driver.CreateMachineResponse{
		ProviderID: call.providerID(server),
		NodeName:   request.Machine.Name,
	}, nil
}

func isNotFound(err error) bool {
	coded, ok := status.FromError(openstackStatus(err))
	return err != nil && ok && coded.Code() == codes.NotFound
}

func (c *openstackCall) create(name string) (openstackObject, error) {
	spec := c.class.Spec
	network := map[string]string{"uuid": spec.NetworkID}
	if c.hasPort() {
		port, err := c.port(name)
		if err != nil {
			return openstackObject{}, err
		}
		network["port"] = port
	}
	flavors, err := c.listed("compute", "/flavors/detail", "flavors")
	if err != nil {
		return openstackObject{}, err
	}
	index := slices.IndexFunc(flavors, func(flavor openstackObject) bool { return flavor.Name == spec.FlavorName })
	if index < 0 {
		return openstackObject{}, status.Error(codes.ResourceExhausted, "no flavor "+spec.FlavorName)
	}
	groups := []map[string]string{}
	for _, group := range spec.SecurityGroups {
		groups = append(groups, map[string]string{"name": group})
	}
	wanted := map[string]any{
		"name":              name,
		"flavorRef":         flavors[index].ID,
		"imageRef":          spec.ImageID,
		"key_name":          spec.KeyName,
		"availability_zone": spec.AvailabilityZone,
		"metadata":          spec.Tags,
		"security_groups":   groups,
		"networks":          []any{network},
		"user_data":         base64.StdEncoding.EncodeToString(c.userData),
	}
	if c.hasVolume() {
		volume, err := c.volume(name)
		if err != nil {
			return openstackObject{}, err
		}
		wanted["imageRef"] = ""
		wanted["block_device_mapping_v2"] = []any{map[string]any{
			"uuid":                  volume,
			"source_type":           "volume",
			"destination_type":      "volume",
			"boot_index":            0,
			"delete_on_termination": false,
		}}
	}
	var answer struct{ Server openstackObject }
	err = c.send("compute", http.MethodPost, "/servers", map[string]any{"server": wanted}, &answer)
	return answer.Server, err
}

// port returns the port of a Machine, and creates it if there is none.
func (c *openstackCall) port(name string) (string, error) {
	found, err := c.named("network", "/ports", "ports", name)
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		return found[0].ID, nil
	}
	groups := []string{}
	for _, group := range c.class.Spec.SecurityGroups {
		found, err := c.named("network", "/security-groups", "security_groups", group)
		if err != nil || len(found) != 1 {
			return "", fmt.Errorf("security group %s: %d found (%w)", group, len(found), err)
		}
		groups = append(groups, found[0].ID)
	}
	addresses := []any{}
	for _, subnet := range c.class.Spec.SubnetIDs {
		addresses = append(addresses, map[string]string{"subnet_id": subnet})
	}
	wanted := map[string]any{
		"name":            name,
		"network_id":      c.class.Spec.NetworkID,
		"fixed_ips":       addresses,
		"security_groups": groups,
	}
	var answer struct{ Port openstackObject }
	if err := c.send("network", http.MethodPost, "/ports", map[string]any{"port": wanted}, &answer); err != nil {
		return "", err
	}
	tags := map[string]any{"tags": c.marks()}
	return answer.Port.ID, c.send("network", http.MethodPut, "/ports/"+answer.Port.ID+"/tags", tags, nil)
}

// volume returns the root volume of a Machine, and creates it if there is none.
func (c *openstackCall) volume(name string) (string, error) {
	found, err := c.named("block-storage", "/volumes/detail", "volumes", name)
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		wanted := map[string]any{
			"name":              name,
			"size":              c.class.Spec.RootDiskSize,
			"volume_type":       c.class.Spec.RootDiskType,
			"availability_zone": c.class.Spec.AvailabilityZone,
			"imageRef":          c.class.Spec.ImageID,
			"metadata":          c.class.Spec.Tags,
		}
		var answer struct{ Volume openstackObject }
		if err := c.send("block-storage", http.MethodPost, "/volumes", map[string]any{"volume": wanted}, &answer); err != nil {
			return "", err
		}
		found = []openstackObject{answer.Volume}
	}
	id := found[0].ID
	return id, c.eventually("volume "+id, func() (bool, error) {
		var answer struct{ Volume openstackObject }
		err := c.send("block-storage", http.MethodGet, "/volumes/"+id, nil, &answer)
		if answer.Volume.Status == "error" {
			return false, status.Error(codes.Internal, "volume "+id+" is in the state error")
		}
		return answer.Volume.Status == "available", err
	})
}

// finish waits until a server runs, and lets its ports accept the packets of pods.
func (c *openstackCall) finish(server openstackObject) error {
	err := c.eventually("server "+server.ID, func() (bool, error) {
		now, err := c.server(server.ID)
		if now.Status == "ERROR" {
			return false, status.Error(codes.Internal, "server "+server.ID+" is in the state ERROR")
		}
		return now.Status == "ACTIVE", err
	})
	if err != nil {
		return err
	}
	ports, err := c.listed("network", "/ports?device_id="+server.ID, "ports")
	if err != nil {
		return err
	}
	for _, port := range ports {
		// Each request replaces the pairs of the one before.
		for _, pods := range c.class.Spec.PodNetworkCIDRs {
			pairs := []map[string]string{{"ip_address": pods}}
			body := map[string]any{"port": map[string]any{"allowed_address_pairs": pairs}}
			if err := c.send("network", http.MethodPut, "/ports/"+port.ID, body, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *openstack) DeleteMachine(ctx context.Context, request *driver.DeleteMachineRequest) (*driver.DeleteMachineResponse, error) {
	call, err := o.begin(ctx, request.MachineClass, request.Secret)
	if err != nil {
		return nil, err
	}
	return &driver.DeleteMachineResponse{}, openstackStatus(call.delete(request.Machine))
}

// delete deletes the server of a Machine, waits until it no longer exists, and then deletes
// the ports and the volumes of that name.
func (c *openstackCall) delete(machine *v1alpha1.Machine) error {
	server, err := c.find(machine)
	if err == nil {
		err = c.send("compute", http.MethodDelete, "/servers/"+server.ID, nil, nil)
	}
	if err == nil {
		err = c.eventually("deletion of server "+server.ID, func() (bool, error) {
			_, err := c.server(server.ID)
			if isAbsent(err) {
				return true, nil
			}
			return false, err
		})
	}
	if err != nil && !isNotFound(err) {
		return err
	}
	if c.hasPort() {
		if err := c.deleteNamed("network", "/ports", "/ports", "ports", machine.Name); err != nil {
			return err
		}
	}
	if c.hasVolume() {
		return c.deleteNamed("block-storage", "/volumes/detail", "/volumes", "volumes", machine.Name)
	}
	return nil
}

func (c *openstackCall) deleteNamed(service, list, path, kind, name string) error {
	found, err := c.named(service, list, kind, name)
	if err != nil {
		return err
	}
	for _, one := range found {
		if err := c.send(service, http.MethodDelete, path+"/"+one.ID, nil, nil); err != nil && !isAbsent(err) {
			return err
		}
	}
	return nil
}

func (o *openstack) ListMachines(ctx context.Context, request *driver.ListMachinesRequest) (*driver.ListMachinesResponse, error) {
	call, err := o.begin(ctx, request.MachineClass, request.Secret)
	if err != nil {
		return nil, err
	}
	// The lane has fewer servers than a page.
	servers, err := call.listed("compute", "/servers/detail", "servers")
	if err != nil {
		return nil, openstackStatus(err)
	}
	machines := map[string]string{}
	for _, server := range call.ours(servers) {
		machines[call.providerID(server)] = server.Name
	}
	return &driver.ListMachinesResponse{MachineList: machines}, nil
}

func (o *openstack) GetVolumeIDs(_ context.Context, request *driver.GetVolumeIDsRequest) (*driver.GetVolumeIDsResponse, error) {
	return volumeIDs(request, "cinder.csi.openstack.org"), nil
}
