# Starts the manager with the flags of `make start` in Gardener's repository. The suite sets the
# variables on the command line; the lane sets MACHINIST and the port.
start:
	exec $(MACHINIST) machine-controller-manager \
		--control-kubeconfig=$(CONTROL_KUBECONFIG) \
		--target-kubeconfig=$(TARGET_KUBECONFIG) \
		--namespace=$(CONTROL_NAMESPACE) \
		--safety-up=2 \
		--safety-down=1 \
		--machine-safety-overshooting-period=$(MACHINE_SAFETY_OVERSHOOTING_PERIOD) \
		--leader-elect=$(LEADER_ELECT) \
		--v=3 \
		--address=127.0.0.1 --port=$(MANAGER_PORT)
