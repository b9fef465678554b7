module machinist.invalid/takeover

go 1.26.2

require (
	github.com/gardener/machine-controller-manager v0.62.1
	github.com/spf13/pflag v1.0.9
	k8s.io/api v0.34.0
	k8s.io/apimachinery v0.34.0
	k8s.io/component-base v0.34.0
)
