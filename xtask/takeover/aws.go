package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// aws creates instances of EC2 as the provider of Gardener does: found by the tag Name and the two
// tag keys of the class, created with a random client token, then initialized.
//
// The requests name the access key and the region, and have no valid signature: moto checks none.
type aws struct {
	endpoint string
}

// awsClass has the fields of a class that the lane uses. Go matches their names in any letter case.
type awsClass struct {
	Region       string
	AMI          string
	MachineType  string
	KeyName      string
	IAM          struct{ Name string }
	BlockDevices []struct {
		EBS struct {
			VolumeType          string
			VolumeSize          int
			IOPS                int
			Throughput          *int
			Encrypted           bool
			DeleteOnTermination *bool
		}
	}
	NetworkInterfaces []struct {
		SubnetID         string
		SecurityGroupIDs []string
	}
	SrcAndDstChecksEnabled *bool
	Tags                   map[string]string
}

type awsTag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

type awsInstance struct {
	ID             string   `xml:"instanceId"`
	PrivateDNSName string   `xml:"privateDnsName"`
	Tags           []awsTag `xml:"tagSet>item"`
	Interfaces     []struct {
		ID              string `xml:"networkInterfaceId"`
		SourceDestCheck bool   `xml:"sourceDestCheck"`
	} `xml:"networkInterfaceSet>item"`
}

func (i awsInstance) name() string {
	for _, tag := range i.Tags {
		if tag.Key == "Name" {
			return tag.Value
		}
	}
	return ""
}

// awsCall has all that the requests of one call of the driver need.
type awsCall struct {
	ctx       context.Context
	endpoint  string
	accessKey string
	class     awsClass
	userData  []byte
}

func (a *aws) begin(ctx context.Context, class *v1alpha1.MachineClass, secret *corev1.Secret) (*awsCall, error) {
	if class.Provider != "AWS" {
		return nil, status.Error(codes.InvalidArgument, "the provider of the class is "+class.Provider)
	}
	call := &awsCall{ctx: ctx, endpoint: a.endpoint, userData: secret.Data["userData"]}
	call.accessKey = strings.TrimSpace(string(secret.Data["accessKeyID"]))
	if err := json.Unmarshal(class.ProviderSpec.Raw, &call.class); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return call, nil
}

// send sends a request, and decodes the XML of its answer.
func (c *awsCall) send(action string, parameters url.Values, answer any) error {
	parameters.Set("Action", action)
	parameters.Set("Version", "2016-11-15")
	body := strings.NewReader(parameters.Encode())
	request, err := http.NewRequestWithContext(c.ctx, http.MethodPost, c.endpoint, body)
	if err != nil {
		return err
	}
	scope := fmt.Sprintf("%s/20260101/%s/ec2/aws4_request", c.accessKey, c.class.Region)
	request.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+scope+", SignedHeaders=host, Signature=0")
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	text, _, err := send(request)
	if err != nil || answer == nil {
		return err
	}
	return xml.Unmarshal(text, answer)
}

// isAbsentInstance reports whether EC2 said that an instance does not exist.
func isAbsentInstance(err error) bool {
	var refused *refusal
	return errors.As(err, &refused) && strings.Contains(refused.text, "InvalidInstanceID.NotFound")
}

// isTerminated reports whether moto refused to terminate an instance again: it looks for the
// interfaces, which it deleted the first time. EC2 accepts the request.
func isTerminated(err error) bool {
	var refused *refusal
	return errors.As(err, &refused) && strings.Contains(refused.text, "InvalidNetworkInterfaceID.NotFound")
}

func awsStatus(err error) error {
	if isAbsentInstance(err) {
		return status.Error(codes.NotFound, err.Error())
	}
	return asStatus(err, codes.Internal)
}

// describe returns all instances that the parameters select.
func (c *awsCall) describe(parameters url.Values) ([]awsInstance, error) {
	var found []awsInstance
	for {
		var answer struct {
			Reservations []struct {
				Instances []awsInstance `xml:"instancesSet>item"`
			} `xml:"reservationSet>item"`
			NextToken string `xml:"nextToken"`
		}
		if err := c.send("DescribeInstances", parameters, &answer); err != nil {
			return nil, err
		}
		for _, reservation := range answer.Reservations {
			found = append(found, reservation.Instances...)
		}
		if answer.NextToken == "" {
			return found, nil
		}
		parameters.Set("NextToken", answer.NextToken)
	}
}

func (c *awsCall) byID(id string) ([]awsInstance, error) {
	return c.describe(url.Values{"InstanceId.1": {id}})
}

// byTags returns the instances of the class with that tag Name, or all of the class.
func (c *awsCall) byTags(name string) ([]awsInstance, error) {
	parameters := url.Values{}
	number := 0
	filter := func(name string, values ...string) {
		number++
		prefix := fmt.Sprintf("Filter.%d.", number)
		parameters.Set(prefix+"Name", name)
		for index, value := range values {
			parameters.Set(fmt.Sprintf("%sValue.%d", prefix, index+1), value)
		}
	}
	if name != "" {
		filter("tag:Name", name)
	}
	for _, part := range []string{"kubernetes.io/cluster/", "kubernetes.io/role/"} {
		for key := range c.class.Tags {
			if strings.Contains(key, part) {
				filter("tag-key", key)
			}
		}
	}
	filter("instance-state-name", "pending", "running", "stopping", "stopped")
	return c.describe(parameters)
}

// find finds the instance of a Machine: by its tags, else by its recorded id.
func (c *awsCall) find(machine *v1alpha1.Machine) (awsInstance, error) {
	found, err := c.byTags(machine.Name)
	if err == nil && len(found) == 0 && machine.Spec.ProviderID != "" {
		found, err = c.byID(path.Base(machine.Spec.ProviderID))
	}
	switch {
	case err != nil:
		return awsInstance{}, awsStatus(err)
	case len(found) == 0:
		return awsInstance{}, status.Error(codes.NotFound, "no instance is called "+machine.Name)
	case len(found) > 1:
		return awsInstance{}, status.Error(codes.OutOfRange, "several instances are called "+machine.Name)
	}
	return found[0], nil
}

func (c *awsCall) providerID(instance awsInstance) string {
	return fmt.Sprintf("aws:///%s/%s", c.class.Region, instance.ID)
}

// checked returns the interfaces whose source check has to be disabled.
func (c *awsCall) checked(instance awsInstance) []string {
	if enabled := c.class.SrcAndDstChecksEnabled; enabled == nil || *enabled {
		return nil
	}
	var checked []string
	for _, card := range instance.Interfaces {
		if card.SourceDestCheck {
			checked = append(checked, card.ID)
		}
	}
	return checked
}

func (a *aws) GetMachineStatus(ctx context.Context, request *driver.GetMachineStatusRequest) (*driver.GetMachineStatusResponse, error) {
	call, err := a.begin(ctx, request.MachineClass, request.Secret)
	if err != nil {
		return nil, err
	}
	instance, err := call.find(request.Machine)
	if err != nil {
		return nil, err
	}
	response := &driver.GetMachineStatusResponse{
		ProviderID: call.providerID(instance),
		NodeName:   instance.PrivateDNSName,
	}
	if checked := call.checked(instance); len(checked) > 0 {
		return response, status.Error(codes.Uninitialized, "SourceDestCheck is enabled")
	}
	return response, nil
}

func (a *aws) CreateMachine(ctx context.Context, request *driver.CreateMachineRequest) (*driver.CreateMachineResponse, error) {
	call, err := a.begin(ctx, request.MachineClass, request.Secret)
	if err != nil {
		return nil, err
	}
	instance, err := call.create(request.Machine.Name)
	if err != nil {
		return nil, awsStatus(err)
	}
	return &driver.CreateMachineResponse{
		ProviderID: call.providerID(instance),
		NodeName:   instance.PrivateDNSName,
	}, nil
}

func (c *awsCall) create(name string) (awsInstance, error) {
	var images struct {
		Items []struct {
			RootDeviceName string `xml:"rootDeviceName"`
		} `xml:"imagesSet>item"`
	}
	if err := c.send("DescribeImages", url.Values{"ImageId.1": {c.class.AMI}}, &images); err != nil {
		return awsInstance{}, err
	}
	if len(images.Items) == 0 {
		return awsInstance{}, status.Error(codes.NotFound, "no image "+c.class.AMI)
	}
	var created struct {
		Instances []awsInstance `xml:"instancesSet>item"`
	}
	if err := c.send("RunInstances", c.parameters(name, images.Items[0].RootDeviceName), &created); err != nil {
		return awsInstance{}, err
	}
	found, err := c.byID(created.Instances[0].ID)
	if err == nil && len(found) != 1 {
		err = status.Error(codes.Internal, "the instance is not visible yet")
	}
	if err != nil {
		return awsInstance{}, err
	}
	return found[0], nil
}

// parameters returns the parameters of RunInstances.
func (c *awsCall) parameters(name, rootDevice string) url.Values {
	parameters := url.Values{
		"ClientToken":                {string(uuid.NewUUID())},
		"MinCount":                   {"1"},
		"MaxCount":                   {"1"},
		"ImageId":                    {c.class.AMI},
		"InstanceType":               {c.class.MachineType},
		"KeyName":                    {c.class.KeyName},
		"IamInstanceProfile.Name":    {c.class.IAM.Name},
		"UserData":                   {base64.StdEncoding.EncodeToString(c.userData)},
		"MetadataOptions.HttpTokens": {"required"},
		"MetadataOptions.HttpPutResponseHopLimit": {"2"},
	}
	for index, device := range c.class.BlockDevices {
		prefix := fmt.Sprintf("BlockDeviceMapping.%d.", index+1)
		// The lane has one volume for each instance.
		parameters.Set(prefix+"DeviceName", rootDevice)
		parameters.Set(prefix+"Ebs.VolumeType", device.EBS.VolumeType)
		parameters.Set(prefix+"Ebs.VolumeSize", strconv.Itoa(device.EBS.VolumeSize))
		parameters.Set(prefix+"Ebs.Encrypted", strconv.FormatBool(device.EBS.Encrypted))
		stays := device.EBS.DeleteOnTermination != nil && !*device.EBS.DeleteOnTermination
		parameters.Set(prefix+"Ebs.DeleteOnTermination", strconv.FormatBool(!stays))
	}
	for index, card := range c.class.NetworkInterfaces {
		prefix := fmt.Sprintf("NetworkInterface.%d.", index+1)
		parameters.Set(prefix+"DeviceIndex", strconv.Itoa(index))
		parameters.Set(prefix+"SubnetId", card.SubnetID)
		parameters.Set(prefix+"DeleteOnTermination", "true")
		for number, group := range card.SecurityGroupIDs {
			parameters.Set(fmt.Sprintf("%sSecurityGroupId.%d", prefix, number+1), group)
		}
	}
	for index, kind := range []string{"instance", "volume", "network-interface"} {
		prefix := fmt.Sprintf("TagSpecification.%d.", index+1)
		parameters.Set(prefix+"ResourceType", kind)
		for number, tag := range c.tags(name) {
			parameters.Set(fmt.Sprintf("%sTag.%d.Key", prefix, number+1), tag.Key)
			parameters.Set(fmt.Sprintf("%sTag.%d.Value", prefix, number+1), tag.Value)
		}
	}
	return parameters
}

// tags returns the tags of an instance and its parts: the tags of the class, with another Name.
func (c *awsCall) tags(name string) []awsTag {
	tags := []awsTag{{Key: "Name", Value: name}}
	for key, value := range c.class.Tags {
		if key != "Name" {
			tags = append(tags, awsTag{Key: key, Value: value})
		}
	}
	return tags
}

func (a *aws) InitializeMachine(ctx context.Context, request *driver.InitializeMachineRequest) (*driver.InitializeMachineResponse, error) {
	call, err := a.begin(ctx, request.MachineClass, request.Secret)
	if err != nil {
		return nil, err
	}
	instance, err := call.find(request.Machine)
	if err != nil {
		return nil, err
	}
	for _, card := range call.checked(instance) {
		parameters := url.Values{"NetworkInterfaceId": {card}, "SourceDestCheck.Value": {"false"}}
		if err := call.send("ModifyNetworkInterfaceAttribute", parameters, nil); err != nil {
			return nil, status.Error(codes.Uninitialized, err.Error())
		}
	}
	return &driver.InitializeMachineResponse{
		ProviderID: call.providerID(instance),
		NodeName:   instance.PrivateDNSName,
	}, nil
}

// DeleteMachine terminates the recorded instance. Without an id, it terminates all that are found.
func (a *aws) DeleteMachine(ctx context.Context, request *driver.DeleteMachineRequest) (*driver.DeleteMachineResponse, error) {
	call, err := a.begin(ctx, request.MachineClass, request.Secret)
	if err != nil {
		return nil, err
	}
	var ids []string
	if id := request.Machine.Spec.ProviderID; id != "" {
		ids = append(ids, path.Base(id))
	} else {
		found, err := call.byTags(request.Machine.Name)
		if err != nil {
			return nil, awsStatus(err)
		}
		for _, instance := range found {
			ids = append(ids, instance.ID)
		}
	}
	for _, id := range ids {
		parameters := url.Values{"InstanceId.1": {id}, "DryRun": {"false"}}
		err := call.send("TerminateInstances", parameters, nil)
		if err != nil && !isAbsentInstance(err) && !isTerminated(err) {
			return nil, awsStatus(err)
		}
	}
	return &driver.DeleteMachineResponse{}, nil
}

func (a *aws) ListMachines(ctx context.Context, request *driver.ListMachinesRequest) (*driver.ListMachinesResponse, error) {
	call, err := a.begin(ctx, request.MachineClass, request.Secret)
	if err != nil {
		return nil, err
	}
	found, err := call.byTags("")
	if err != nil {
		return nil, awsStatus(err)
	}
	machines := map[string]string{}
	for _, instance := range found {
		machines[call.providerID(instance)] = instance.name()
	}
	return &driver.ListMachinesResponse{MachineList: machines}, nil
}

func (a *aws) GetVolumeIDs(_ context.Context, request *driver.GetVolumeIDsRequest) (*driver.GetVolumeIDsResponse, error) {
	return volumeIDs(request, "ebs.csi.aws.com"), nil
}

// volumeIDs returns the volumes of one CSI driver. The lane has no other volumes.
func volumeIDs(request *driver.GetVolumeIDsRequest, csiDriver string) *driver.GetVolumeIDsResponse {
	ids := []string{}
	for _, volume := range request.PVSpecs {
		if volume.CSI != nil && volume.CSI.Driver == csiDriver {
			ids = append(ids, volume.CSI.VolumeHandle)
		}
	}
	slices.Sort(ids)
	return &driver.GetVolumeIDsResponse{VolumeIDs: ids}
}
