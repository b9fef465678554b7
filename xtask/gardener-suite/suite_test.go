// Package controller_test runs the integration suite of Gardener's machine-controller-manager with
// the simulated cloud. See README.md.
package controller_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/gardener/machine-controller-manager/pkg/test/integration/common"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

var suite = common.NewIntegrationTestFramework(&ledger{})

var _ = ginkgo.BeforeSuite(func() {
	gomega.Expect(setDeletionTime(5 * time.Second)).To(gomega.Succeed())
	suite.SetupBeforeSuite()
})

var _ = ginkgo.AfterSuite(suite.Cleanup)

var _ = ginkgo.Describe("Machine controllers", func() {
	suite.BeforeEachCheck()
	suite.ControllerTests()
})

func TestMachineControllers(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "Gardener's integration suite")
}

// setDeletionTime lets the simulated cloud delete as slowly as a real one. By default its deletions
// take no time, and then no Machines are left when the manager looks for surplus ones: the suite
// expects a freeze after a scale-down.
func setDeletionTime(deletion time.Duration) error {
	settings := fmt.Sprintf(`{"deleteSeconds": %g}`, deletion.Seconds())
	url := os.Getenv("SIM_ENDPOINT") + "/admin/settings"
	request, err := http.NewRequest(http.MethodPatch, url, strings.NewReader(settings))
	if err != nil {
		return err
	}
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, response.Status)
	}
	return nil
}

// ledger asks the simulated cloud which instances exist. The cloud has no other resources.
type ledger struct {
	url string
}

// InitializeResourcesTracker notes where the ledger is, and fails if it cannot be read.
func (l *ledger) InitializeResourcesTracker(_ *v1alpha1.MachineClass, _ map[string][]byte, _ string) error {
	l.url = os.Getenv("SIM_ENDPOINT") + "/admin/ledger"
	_, err := l.alive()
	return err
}

// IsOrphanedResourcesAvailable reports whether an instance is left. A ledger that cannot be read
// counts as a leftover: without an answer, nothing is known.
func (l *ledger) IsOrphanedResourcesAvailable() bool {
	alive, err := l.alive()
	return err != nil || alive > 0
}

// alive counts the instances that are not deleted.
func (l *ledger) alive() (int, error) {
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get(l.url)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s answered %s", l.url, response.Status)
	}
	var read struct {
		Entries []struct {
			Deleted *string `json:"deleted"`
		} `json:"entries"`
	}
	if err := json.NewDecoder(response.Body).Decode(&read); err != nil {
		return 0, err
	}
	alive := 0
	for _, entry := range read.Entries {
		if entry.Deleted == nil {
			alive++
		}
	}
	return alive, nil
}
