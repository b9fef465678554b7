# Starts the machine controller as the Makefiles of Gardener's providers do. The suite sets the
# variables on the command line; the lane sets MACHINIST, SIM_ENDPOINT and the port.
start:
	exec $(MACHINIST) machine-controller \
		--control-kubeconfig=$(CONTROL_KUBECONFIG) \
		--target-kubeconfig=$(TARGET_KUBECONFIG) \
		--namespace=$(CONTROL_NAMESPACE) \
		--machine-creation-timeout=20m \
		--machine-drain-timeout=5m \
		--machine-health-timeout=10m \
		--machine-pv-detach-timeout=2m \
		--machine-safety-apiserver-statuscheck-timeout=30s \
		--machine-safety-apiserver-statuscheck-period=1m \
		--machine-safety-orphan-vms-period=30m \
		--leader-elect=$(LEADER_ELECT) \
		--v=3 \
		--provider=sim --sim-endpoint=$(SIM_ENDPOINT) \
		--address=127.0.0.1 --port=$(MACHINE_CONTROLLER_PORT)
