package diagnosis

// What the audit finds about changes that came with a release of Talos: TM395 to TM399.
const (
	RenovateInstaller ID = "TM395"
	KernelArgsIdle    ID = "TM396"
)

var releaseEntries = []Entry{
	{
		ID: RenovateInstaller, Title: "Renovate watches an image that gets no more tags", Severity: Warning,
		Cause: "ghcr.io/siderolabs/installer is published up to Talos 1.13. With a comment that names it Renovate proposes " +
			"releases of up to 1.13, never a newer one, and nothing tells.",
		Remedy: "Let it watch the releases: datasource=github-releases depName=siderolabs/talos.",
		Source: "Talos documentation, what's new in 1.14, Default Installer Image; docs.renovatebot.com, regex manager",
	},
	{
		ID: KernelArgsIdle, Title: "A schematic has kernel arguments that say what is so anyway", Severity: Warning,
		Cause: "Images of Talos 1.14 have no lockdown=confidentiality for SecureBoot, no init_on_alloc=1, and " +
			"nvme_core.io_timeout on AWS alone: taking these out does nothing any more. With SecureBoot the kernel is " +
			"locked down for integrity by itself.",
		Remedy: "Take the argument out of the schematic. Its id changes with that, and so does the installer's name.",
		Source: "machinery v1.14.1 kernel/kernel.go, imager/quirks/quirks.go; Talos documentation, what's new in 1.14",
	},
}
