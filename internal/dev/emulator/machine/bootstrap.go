package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/service"
)

// ErrEtcdData is what a node says about an etcd directory with data in it.
const ErrEtcdData = "etcd data directory is not empty"

// Within waits a while, in node time, for a condition of the boot.
func (e *etcdService) Within(ctx context.Context, limit time.Duration, condition func() bool) bool {
	ctx, cancel := e.boot.Node.Lab.clock.WithTimeout(ctx, limit)
	defer cancel()

	return e.boot.changed.Until(ctx, condition) == nil
}

// Bootstrap replaces the waiting etcd service by one that makes a cluster. An etcd of an earlier Bootstrap is
// stopped first; if that one already ran, it leaves data behind and nothing starts again until the node reboots.
func (e *etcdService) Bootstrap(start EtcdStart) error {
	e.bootstrapping.Lock()
	defer e.bootstrapping.Unlock()

	fault := e.boot.Node.Faults().Bootstrap

	if fault == faults.BootstrapEtcdStuck {
		return errors.New("failed to stop etcd: its task is still running")
	}

	e.boot.mu.Lock()
	started, over := e.run.started, e.run.over()
	ran := e.run.Bootstrap && started
	e.boot.mu.Unlock()

	e.stop(errBootstrapRequested)

	switch {
	case over: // nothing was stopped
	case started:
		e.boot.Services.Set(service.Etcd, service.Finished, "Service finished successfully")
	default:
		e.boot.Services.Set(service.Etcd, e.boot.Release.waitEnded.state, e.boot.Release.waitEnded.message)
	}

	e.boot.Services.Set(service.Etcd, service.Finished, "Bootstrap requested")

	if ran && e.boot.Node.ReadDrive().Etcd == nil {
		e.makeCluster()
	}

	if e.boot.Node.ReadDrive().Etcd != nil {
		return errors.New(ErrEtcdData)
	}

	if fault == faults.BootstrapEtcdStartFails {
		return fmt.Errorf("error starting etcd in bootstrap mode: service %q not defined", service.Etcd)
	}

	e.start(start)

	return nil
}
