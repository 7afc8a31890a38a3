package machine

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/sequence"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/service"
)

// Phases that only Talos 1.14 has.
var (
	denyNewServices = sequence.Idle("denyNewServices", "denyNewServices")
	stopContainers  = sequence.Idle("stopContainers", "teardownContainerLifecycle")
)

// since114 are phases of which the releases before Talos 1.14 have none.
func (p *phases) since114(phases ...sequence.Phase) []sequence.Phase {
	if !p.boot.Release.laterPhases {
		return nil
	}

	return phases
}

// initialize114 bring the early services up and load the machine config, as Talos 1.14 does.
func (p *phases) initialize114() []sequence.Phase {
	return []sequence.Phase{
		sequence.Single("systemRequirements", "enforceKSPPRequirements", p.powerOn),
		{Name: "earlyServices", Tasks: []sequence.Task{
			p.starts("startMachined", service.Machined), p.starts("waitForUdevd", service.Udevd),
			{Name: "startApid", Run: p.boot.api.start},
			p.starts("startAuditd", service.Auditd), p.starts("startSyslogd", service.Syslogd),
			p.starts("startContainerd", service.Containerd),
		}},
		sequence.Single("meta", "reloadMeta", func(context.Context) error {
			p.boot.cri.load() // its own controller does, at about this time

			return nil
		}),
		{Name: "dashboard", Tasks: []sequence.Task{p.starts("startDashboard", service.Dashboard)}},
		sequence.Single("config", "loadConfig", p.boot.Config.acquire),
	}
}

// bootUp114 start what the machine config asks for, as Talos 1.14 does.
func (p *phases) bootUp114() []sequence.Phase {
	return []sequence.Phase{
		sequence.Idle("memorySizeCheck", "memorySizeCheck"),
		sequence.Single("diskSizeCheck", "diskSizeCheck", p.awaitDisk),
		sequence.Idle("env", "setUserEnvVars", "waitForCARoots"),
		sequence.Idle("dbus", "startDBus"),
		sequence.Single("ephemeral", "mountEphemeralPartition", p.mountEphemeral),
		sequence.Idle("promotableVolumes", "mountPromotableSystemPartitions"),
		sequence.Idle("userDisks", "mountUserDisks"),
		sequence.Idle("userSetup", "writeUserFiles"),
		sequence.Single("startEverything", "startAllServices", p.startEverything),
	}
}
