package steps

import (
	"context"
	"net"
	"net/netip"
	"slices"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
)

// fileFindings are what the files tell, also about each other; of nodes that -node= leaves out nothing is told.
func (w *work) fileFindings(ctx context.Context, of *workspace.Workspace, checks check.Settings) []diagnosis.Finding {
	files := of.CheckOptions(checks)
	files.AsTheyAre, files.CallsFrom = true, check.CallsFrom

	result := table.Run(ctx, check.Read(files))
	findings := append(result.Findings, result.NotRunOfFiles()...)

	return slices.DeleteFunc(findings, func(finding diagnosis.Finding) bool {
		node := w.Cluster.Node(finding.Node)
		return node != nil && !w.selected(node)
	})
}

// checkFiles finds what settings and files alone decide, for a step that preflight did not go before: with bad input
// nothing is sent to anybody.
func (w *work) checkFiles(ctx context.Context) error {
	err := w.refuseFiles(ctx, func(diagnosis.Finding) bool { return true })
	w.filesChecked = true

	return err
}

// checkKinship finds only files of different clusters. Steps that send no config leave it at that: a recovery must not
// end at a file that it does not need.
func (w *work) checkKinship(ctx context.Context) error {
	return w.refuseFiles(ctx, func(finding diagnosis.Finding) bool {
		return finding.ID == diagnosis.TalosconfigForeign || finding.ID == diagnosis.ConfigCA
	})
}

// refuseFiles gives the failures that the files alone decide, of those that matter; none if they were judged before.
func (w *work) refuseFiles(ctx context.Context, matters func(diagnosis.Finding) bool) error {
	if w.filesChecked {
		return nil
	}

	return w.refuse(ctx, w.workspace, matters)
}

// refuse gives those failures of some files, and shows them.
func (w *work) refuse(ctx context.Context, of *workspace.Workspace, matters func(diagnosis.Finding) bool) error {
	offline := w.checkSettings()
	offline.LookupHost, offline.VIPAnswers = nil, nil

	var problems []error
	for _, finding := range w.fileFindings(ctx, of, offline) {
		if finding.Severity == diagnosis.Failure && finding.ExitCode() == diagnosis.ExitBadInput && matters(finding) {
			w.Report.Finding(w.step.Name(), finding)
			problems = append(problems, finding.Problem(w.step.Name(), nil))
		}
	}

	return diagnosis.Join(problems...)
}

// checkSettings are the settings that the checks take.
func (w *work) checkSettings() check.Settings {
	return check.Settings{
		AllowAmbiguousDisk: w.Settings.AllowAmbiguousDisk,
		SkipChecks:         w.workspace.SkipChecks(),
		Now:                workspace.CertificateTime(),
		LookupHost: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
		VIPAnswers: w.observer.VIPAnswers,
	}
}
