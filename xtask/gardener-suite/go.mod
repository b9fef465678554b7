module machinist.invalid/gardener-suite

go 1.26.2

require (
	github.com/gardener/machine-controller-manager v0.62.1
	github.com/onsi/ginkgo/v2 v2.27.2
	github.com/onsi/gomega v1.38.2
)
