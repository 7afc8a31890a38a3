package machineconfig

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/hashicorp/go-multierror"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"

	"github.com/talos-mage/talos-mage/internal/base/plainfile"
)

// HowToGenerate is the command that makes the machine configs.
const HowToGenerate = "mage config:generate"

// Config is one loaded machine config.
type Config struct {
	// Path is the file it came from, for messages.
	Path string
	// Bytes are the file's content, exactly as it is sent to a node.
	Bytes []byte
	// Provider is machinery's view of all its documents. It is not to be changed.
	Provider talosconfig.Provider

	raw *v1alpha1.Config
}

// Load reads and parses the machine config at path. Errors are *LoadError.
func Load(path string) (*Config, error) {
	data, _, err := plainfile.Read(path)

	return FromFile(path, data, err)
}

// FromFile is Load for a file that was read, or could not be.
func FromFile(path string, data []byte, err error) (*Config, error) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &LoadError{Path: path, Message: "the machine config does not exist", Next: HowToGenerate,
			Err: fs.ErrNotExist}
	case err != nil:
		return nil, &LoadError{Path: path, Message: "can't be read: " + plainFileError(err), Err: err}
	default:
		return FromBytes(path, data)
	}
}

// plainFileError is the reason alone: the path is in the message already.
func plainFileError(err error) string {
	var pathError *fs.PathError

	if errors.As(err, &pathError) {
		return pathError.Err.Error()
	}

	return err.Error()
}

// FromBytes parses a machine config; path is only for messages. Errors are *LoadError.
func FromBytes(path string, data []byte) (*Config, error) {
	provider, err := parse(data)
	if err != nil {
		return nil, explainLoadError(path, data, err)
	}

	raw := provider.RawV1Alpha1()
	if raw == nil || raw.MachineConfig == nil || raw.ClusterConfig == nil {
		return nil, &LoadError{
			Path:    path,
			Message: "is not a complete machine config: it needs a document with `version: v1alpha1`, `machine:` and `cluster:`",
			Next:    HowToGenerate,
		}
	}

	return &Config{Path: path, Bytes: data, Provider: provider, raw: raw}, nil
}

// parse turns a panic of the decoder, which hostile input can cause, into an error.
func parse(data []byte) (provider talosconfig.Provider, err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = errors.New("the YAML can't be decoded")
		}
	}()

	return configloader.NewFromBytes(data)
}

// ValidationError lists what a config is refused for, one plain line each.
type ValidationError struct {
	Path     string
	Problems []string
}

// Error joins the problems with semicolons.
func (e *ValidationError) Error() string {
	return e.Path + ": " + strings.Join(e.Problems, "; ")
}

// Validate checks the config without a node. What depends on the Talos that a node runs is left out: which Kubernetes
// goes with it, and that it calls older fields deprecated. Errors are *ValidationError.
func (c *Config) Validate(mode Mode) (warnings []string, err error) {
	warnings, err = c.Provider.ValidateAsClient(mode, validation.WithLocal())
	warnings = slices.DeleteFunc(warnings, func(warning string) bool {
		return strings.Contains(warning, " is deprecated; use ")
	})

	// Talos before 1.14 takes no such config, and later ones take it and fail to install.
	if mode.RequiresInstall() && !c.HasInstall() {
		err = multierror.Append(err, errNoInstall)
	}

	return c.scrubAll(warnings), c.validationError(mode, err)
}

var errNoInstall = errors.New("nothing says how Talos is to be installed, and it is on no disk yet")

// RuntimeValidate checks what depends on a node's hardware: the install disk selector against the node's disks, which
// is a COSI state that holds block.Disk resources. Errors are *ValidationError.
func (c *Config) RuntimeValidate(ctx context.Context, disks state.State, mode Mode) error {
	// The warnings are left out: machinery takes them from the boot variables of the machine that this program runs on.
	_, err := c.Provider.ValidateAtRuntime(ctx, disks, mode, validation.WithLocal())

	return c.validationError(mode, err)
}

func (c *Config) validationError(mode Mode, err error) error {
	if err == nil {
		return nil
	}

	problems := mode.itsOwn(flatten("", err))
	if len(problems) == 0 {
		return nil
	}

	return &ValidationError{Path: c.Path, Problems: c.scrubAll(problems)}
}

// scrubAll takes the config's secrets out of what machinery says about it. Most often it says nothing, and then the
// secrets need not be looked for.
func (c *Config) scrubAll(lines []string) []string {
	if len(lines) == 0 {
		return nil
	}

	return newScrubber(c.Bytes).scrubAll(lines)
}

// flatten lists the leaves of nested multierrors with the names of the documents that they are about.
func flatten(prefix string, err error) []string {
	var many *multierror.Error

	if errors.As(err, &many) {
		// What a layer adds in front of its multierror is the name of a document.
		if before, _, found := strings.Cut(err.Error(), many.Error()); found &&
			!strings.HasPrefix(before, "v1alpha1.Config") {
			prefix += before
		}

		var lines []string
		for _, inner := range many.Errors {
			lines = append(lines, flatten(prefix, inner)...)
		}

		return lines
	}

	var lines []string

	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, prefix+strings.TrimPrefix(line, "* "))
		}
	}

	return lines
}
