// Command machine-controller is the machine controller of Gardener's machine-controller-manager
// with drivers that leave instances as the providers of Gardener and of 23technologies leave them.
// See README.md.
package main

import (
	"fmt"
	"os"

	"github.com/gardener/machine-controller-manager/pkg/util/provider/app"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/app/options"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/spf13/pflag"
	"k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
)

func main() {
	settings := options.NewMCServer()
	settings.AddFlags(pflag.CommandLine)
	flag.InitFlags()
	logs.InitLogs()
	defer logs.FlushLogs()
	cloud, err := driverOf(os.Getenv("TAKEOVER_CLOUD"))
	if err == nil {
		err = app.Run(settings, cloud)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func driverOf(cloud string) (driver.Driver, error) {
	switch cloud {
	case "hcloud":
		return &hcloud{endpoint: os.Getenv("HCLOUD_ENDPOINT")}, nil
	case "aws":
		return &aws{endpoint: os.Getenv("AWS_ENDPOINT_URL")}, nil
	case "openstack":
		return &openstack{}, nil
	default:
		return nil, fmt.Errorf("TAKEOVER_CLOUD: expected hcloud, aws or openstack, got %q", cloud)
	}
}
