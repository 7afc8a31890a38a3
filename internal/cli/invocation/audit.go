package invocation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/output"
	"github.com/talos-mage/talos-mage/internal/check/proxmox"
	"github.com/talos-mage/talos-mage/internal/check/proxmox/tofu"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
)

// Audit judges the cluster's files, without a node and without the network.
func (i Invocation) Audit(ctx context.Context, flags settings.Overrides) *Failure {
	ctx, stop := withSignals(ctx)
	defer stop()

	loaded, err := i.load(ctx, flags)
	if err != nil {
		return i.badInput(err)
	}

	options := workspace.AuditOptions(ctx, loaded, i.Environ)

	if loaded.AuditProfile == string(check.InteropProfile) {
		options.Profile, options.VMs = check.InteropProfile, i.virtualMachines(ctx, loaded)

		if err := tofu.Refuse(loaded.TofuDir); err != nil && len(loaded.ProxmoxEndpoints) == 0 {
			return i.badInput(diagnosis.NewProblem(diagnosis.BadSetting, "TOFU_DIR: "+err.Error(), "correct TOFU_DIR").From(err))
		}

		if options.CiliumValues = loaded.CiliumValues; options.CiliumValues != "" && !filepath.IsAbs(options.CiliumValues) {
			options.CiliumValues = filepath.Join(i.Workdir, options.CiliumValues)
		}

		if _, err := os.Stat(options.CiliumValues); options.CiliumValues != "" && err != nil {
			return i.badInput(diagnosis.NewProblem(diagnosis.BadSetting,
				"CILIUM_VALUES names "+loaded.CiliumValues+", which can't be read", "correct CILIUM_VALUES").From(err))
		}
	}

	result := table.Run(ctx, check.Read(options))
	if ctx.Err() != nil {
		return i.failure(ctx, "audit", context.Cause(ctx))
	}

	var text strings.Builder
	err = output.Write(result, &text, loaded.AuditFormat, loaded.Detailed())
	if err == nil {
		_, err = io.WriteString(i.Out, i.shown(loaded, result, text.String()))
	}

	if err != nil {
		return i.badInput(diagnosis.Unwritable("the output", err))
	}

	if code := result.ExitCode(); code != diagnosis.ExitOK {
		return i.fail(code, "audit: the files can't work as they are. Next: correct what is listed, then mage audit")
	}

	return nil
}

// shown is an audit's text. In a job of GitHub Actions a table's findings are put beside the lines of files, too.
func (i Invocation) shown(loaded *settings.Settings, result check.Result, text string) string {
	if loaded.AuditFormat != formatTable {
		return i.told(text)
	}

	var shown strings.Builder

	shown.WriteString(report.Wrap(i.told(text), report.Width(i.Out)))

	if to := workflow(loaded); to != nil {
		for _, finding := range result.Trouble() {
			shown.WriteString(i.hint(to.Annotation(finding)) + "\n")
		}
	}

	return shown.String()
}

// virtualMachines lists the VMs: the Proxmox API's if it is given, else those of the OpenTofu files.
func (i Invocation) virtualMachines(ctx context.Context,
	loaded *settings.Settings) func(func(string) bool) ([]proxmox.VM, error) {
	return func(wanted func(string) bool) ([]proxmox.VM, error) {
		if len(loaded.ProxmoxEndpoints) > 0 {
			apis, err := proxmox.APIs(loaded.ProxmoxEndpoints, loaded.ProxmoxTokens, loaded.ProxmoxInsecure)
			if err != nil {
				return nil, err
			}

			return proxmox.VMs(ctx, apis, wanted)
		}

		machines, err := proxmox.FromTofu(loaded.TofuDir, func(path string) string {
			if relative, err := filepath.Rel(loaded.RootDir, path); err == nil && !strings.HasPrefix(relative, "..") {
				return filepath.ToSlash(relative)
			}

			return path
		})
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(machines) == 0 {
			return nil, proxmox.ErrNone
		}

		return machines, err
	}
}

// Explain tells about one kind of trouble.
func (i Invocation) Explain(id string) *Failure {
	entry, known := diagnosis.Lookup(diagnosis.ID(strings.ToUpper(strings.TrimSpace(id))))
	if known {
		fmt.Fprint(i.Out, report.WrapHanging(i.hint(output.Explain(entry)), report.Width(i.Out), output.ExplainIndent))
		return nil
	}

	var ids []string
	for _, entry := range diagnosis.Catalogue() {
		ids = append(ids, string(entry.ID))
	}

	message := fmt.Sprintf("no finding has the id %q; docs/diagnoses.md lists them", id)
	if near := suggest.Word(strings.ToUpper(id), ids); near != "" {
		message += fmt.Sprintf(", did you mean %s?", near)
	}

	return i.fail(diagnosis.ExitBadInput, message)
}
