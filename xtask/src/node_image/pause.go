// The first container of each pod: it keeps the namespaces, and reaps orphaned processes.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for {
			if process, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || process <= 0 {
				break
			}
		}
	}
}
