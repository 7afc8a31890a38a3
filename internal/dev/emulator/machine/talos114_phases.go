package machine

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/sequence"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/service"
)

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
