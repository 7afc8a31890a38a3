package emulator

import (
	"context"
	"errors"
	"fmt"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// How long a Bootstrap waits for what it needs, in node time.
const (
	bootstrapCRIWait  = time.Second
	bootstrapTimeWait = 5 * time.Second
)

// errEtcdData is what a node says about an etcd directory with data in it.
const errEtcdData = "etcd data directory is not empty"

// Bootstrap makes this node's etcd the first of a new cluster. It looks at this node alone: nothing stops a second
// control plane from making a second cluster.
func (s *etcdAPI) Bootstrap(ctx context.Context,
	request *machineapi.BootstrapRequest) (*machineapi.BootstrapResponse, error) {
	b := s.boot

	b.log("bootstrap request received")

	if !b.etcd.within(ctx, bootstrapCRIWait, func() bool { return b.services.up(serviceCRI) }) {
		return nil, status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	}

	if b.node.Faults().Bootstrap == BootstrapTypeUnset {
		return nil, status.Error(codes.Unimplemented, "machine type is not set, cannot use bootstrap API")
	}

	if err := b.onlyOnControlPlane("bootstrap"); err != nil {
		return nil, err
	}

	if !b.etcd.within(ctx, bootstrapTimeWait, b.synced) {
		return nil, status.Error(codes.FailedPrecondition, "time is not in sync yet")
	}

	if b.node.readDrive().etcd != nil {
		return nil, status.Error(codes.AlreadyExists, errEtcdData)
	}

	start := etcdStart{bootstrap: true, recover: request.GetRecoverEtcd(), skipHash: request.GetRecoverSkipHashCheck()}
	if err := b.etcd.bootstrap(start); err != nil {
		return nil, err
	}

	return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, nil
}

// within waits a while, in node time, for a condition of the boot.
func (e *etcdService) within(ctx context.Context, limit time.Duration, condition func() bool) bool {
	ctx, cancel := e.boot.node.lab.clock.WithTimeout(ctx, limit)
	defer cancel()

	return e.boot.changed.Until(ctx, condition) == nil
}

// bootstrap replaces the waiting etcd service by one that makes a cluster. An etcd of an earlier Bootstrap is
// stopped first; if that one already ran, it leaves data behind and nothing starts again until the node reboots.
func (e *etcdService) bootstrap(start etcdStart) error {
	e.bootstrapping.Lock()
	defer e.bootstrapping.Unlock()

	fault := e.boot.node.Faults().Bootstrap

	if fault == BootstrapEtcdStuck {
		return errors.New("failed to stop etcd: its task is still running")
	}

	e.boot.mu.Lock()
	started, over := e.run.started, e.run.over()
	ran := e.run.bootstrap && started
	e.boot.mu.Unlock()

	e.stop(errBootstrapRequested)

	switch {
	case over: // nothing was stopped
	case started:
		e.boot.services.set(serviceEtcd, stateFinished, "Service finished successfully")
	default:
		e.boot.services.set(serviceEtcd, e.boot.release.waitEnded.state, e.boot.release.waitEnded.message)
	}

	e.boot.services.set(serviceEtcd, stateFinished, "Bootstrap requested")

	if ran && e.boot.node.readDrive().etcd == nil {
		e.makeCluster()
	}

	if e.boot.node.readDrive().etcd != nil {
		return errors.New(errEtcdData)
	}

	if fault == BootstrapEtcdStartFails {
		return fmt.Errorf("error starting etcd in bootstrap mode: service %q not defined", serviceEtcd)
	}

	e.start(start)

	return nil
}
