package machine

import (
	"context"
	"strings"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/service"
)

// containerRuntime is the CRI of a boot that loads it with the first services, before there is a machine config. It
// then waits for what it needs.
type containerRuntime struct {
	boot *Boot

	mounted bool // the partition that its data is on; guarded by boot.mu
}

// load begins the wait.
func (c *containerRuntime) load() {
	c.boot.Services.Set(service.CRI, service.Starting, "Starting service")
	c.boot.Tasks.Go(func() { c.live(c.boot.workload) })
}

// live is the service's life. Its history does not name what only the machine config makes it wait for, unless the wait
// began again with the config; it needs a sandbox in any case.
func (c *containerRuntime) live(ctx context.Context) {
	shown := ""

	err := c.boot.changed.Until(ctx, func() bool {
		waiting := c.waitingFor()
		if waiting != "" && waiting != shown {
			shown = waiting

			c.boot.Services.Set(service.CRI, service.Waiting, "Waiting for "+waiting)
		}

		return waiting == ""
	})
	if err != nil {
		return
	}

	c.boot.Services.Set(service.CRI, service.Preparing, "Running pre state")
	c.boot.Services.Set(service.CRI, service.Preparing, "Creating service runner")

	if c.boot.changed.Until(ctx, c.sandboxed) != nil || c.boot.Sleep(ctx, c.boot.Node.options.Timing.Containers) != nil {
		return
	}

	c.boot.Services.Set(service.CRI, service.Running, c.boot.Services.StartedMessage(service.CRI))
	c.boot.Services.SetHealth(service.CRI, true, "")
}

// waitingFor are the conditions that do not hold yet.
func (c *containerRuntime) waitingFor() string {
	c.boot.mu.Lock()
	mounted := c.mounted
	c.boot.mu.Unlock()

	var conditions []string

	if !mounted {
		conditions = append(conditions,
			"volumes /var/lib, /var/lib/cni, CRI, /var/run, /var/run/lock, /opt to be mounted")
	}

	knowsConfig := c.boot.Node.Lab.options.Unsettled.CRIKnowsConfig && c.boot.Config.Active() != nil

	if knowsConfig && !c.sandboxed() {
		conditions = append(conditions, `service "sandboxd" to be "up"`)
	}

	if c.boot.Config.Hostname() == "" {
		conditions = append(conditions, "network")
	}

	if knowsConfig && c.boot.Unattended.Unfinished() {
		conditions = append(conditions, "unattended install")
	}

	return strings.Join(conditions, ", ")
}

// sandboxed reports whether there is the sandbox that the machine config wants containers to run in, or wants none.
func (c *containerRuntime) sandboxed() bool {
	return !c.boot.Config.isolates() || c.boot.Services.Passes(service.Sandboxd)
}

// isolates reports whether the machine config wants containers to run in a sandbox.
func (m *machineConfig) isolates() bool {
	config := m.Active()
	if config == nil {
		return false
	}

	profile := config.SecurityProfileConfig()

	return profile != nil && profile.WorkloadIsolation()
}
