package observe

import (
	"time"

	"github.com/talos-mage/talos-mage/internal/discover/leases"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Facts are what this run saw of a node and did to it.
type Facts struct {
	// SilentSince is when the node was first found not answering; zero while it answers.
	SilentSince time.Time
	// RefusedAt is when its port was last found closed, RefusedIn the boot that was known of it then.
	RefusedAt time.Time
	RefusedIn string
	// Boot tells the machine's boots apart; empty if it could not be read.
	Boot string
	// Sent is the config that this run sent; SentAt and SentTo say when, and to which boot of the machine.
	Sent   *machineconfig.Config
	SentAt time.Time
	SentTo string
	// Unsure is set while the reply to it is missing.
	Unsure bool
	// LeftMaintenance is set once the node was seen to be gone from maintenance after the config was sent, or to have a
	// config of its own.
	LeftMaintenance bool
	// CheckedFingerprint is the certificate of the node whose checks passed.
	CheckedFingerprint string
	// InstallFailure is why an install failed the last time, as the node told it. One that the node tries again by itself
	// has failed since FailingSince, and last at FailedAt.
	InstallFailure         string
	FailingSince, FailedAt time.Time
	// Found is where a search of this run found its machine; MovedFrom is where it had been found before.
	Found     leases.Entry
	MovedFrom string
	// StaleLease says that its machine is not where an earlier search found it; empty if it is, or was not found.
	StaleLease string
	// Rebooting is set once this run had the node reboot.
	Rebooting bool
	// Joining is set for a worker that apply could not ask, since its API opens after bootstrap only.
	Joining bool
	// Failed is why later steps leave the node out.
	Failed error

	// leaseChecked is set once it is known whether the machine is where an earlier search found it, anothersLease if
	// another one is there.
	leaseChecked, anothersLease bool
	// last is how the node last answered, if it was in maintenance, or ours and could be read.
	last talos.Probed
	// compared is what came of comparing its config the last time.
	compared comparison
	// identified is the certificate of the machine that was found to be the declared one.
	identified string
	// installed is the unattended install that was over, in the boot installedIn; nil if none was yet.
	installed   *talos.Install
	installedIn string
}

// InSameBoot reports whether the machine never left the boot in maintenance that the config was sent to: a failed
// install ends with another boot. Where boots can't be told apart, one that was seen to be gone from maintenance has
// left it.
func (f *Facts) InSameBoot() bool {
	if f.SentTo == "" || f.Boot == "" {
		return !f.LeftMaintenance
	}

	return f.Boot == f.SentTo
}

// NotDelivered reports whether the config never arrived: its reply is missing, and the machine is where it was although
// its port was closed meanwhile, which a machine that took it opens in another boot only.
func (f *Facts) NotDelivered() bool {
	return f.Sent != nil && f.Unsure && f.LeftMaintenance && f.InSameBoot()
}

// Reopened reports whether the node answers in another boot than the one in which its port was found closed, as far as
// that one is known.
func (f *Facts) Reopened() bool {
	return !f.RefusedAt.IsZero() && (f.RefusedIn == "" || f.RefusedIn != f.Boot)
}

// Receipt says what became of the config that was sent.
func (f *Facts) Receipt() string {
	if f.Unsure {
		return "the reply to its config was lost"
	}

	return "it accepted its config"
}

// NoteFailure takes in why an unattended install failed.
func (f *Facts) NoteFailure(reason string, at time.Time) {
	if f.FailingSince.IsZero() {
		f.FailingSince = at
	}

	f.InstallFailure, f.FailedAt = reason, at
}

// ForgetFailure is for a node whose install begins anew, with another config, or is over.
func (f *Facts) ForgetFailure() {
	f.InstallFailure, f.FailingSince, f.FailedAt = "", time.Time{}, time.Time{}
}

// noteInstall takes in how far an unattended install was seen to be.
func (f *Facts) noteInstall(seen Observation) {
	if seen.Install != nil && seen.Install.Over() && seen.Boot != "" {
		f.installed, f.installedIn = seen.Install, seen.Boot
	}

	switch {
	case seen.Install == nil:
	case seen.Install.Written():
		f.ForgetFailure()
	case seen.Install.Failure != "":
		f.NoteFailure(seen.Install.Failure, seen.At)
	}
}

// noteAnswer takes in whether and how a node answered.
func (f *Facts) noteAnswer(seen Observation) {
	switch {
	case !seen.Silent():
		f.SilentSince = time.Time{}
	case f.SilentSince.IsZero():
		f.SilentSince = seen.At
	}

	if seen.Silence == talos.Refused {
		f.RefusedAt, f.RefusedIn = seen.At, f.Boot
	}

	if f.Sent != nil && seen.State != talos.Maintenance {
		f.LeftMaintenance = true
	}

	f.last = talos.Probed{}
	if seen.State == talos.Maintenance {
		f.last = seen.Probed
	}
}

// noteConfig takes in whose config a node was seen with.
func (f *Facts) noteConfig(seen Observation) {
	if seen.Wrong != nil || seen.Relation != ConfigSame && seen.Relation != ConfigDrifted {
		return
	}

	f.LeftMaintenance = true
	f.Unsure = f.Unsure && seen.Relation != ConfigSame

	if seen.ReadErr == nil {
		f.last = seen.Probed
	}
}
