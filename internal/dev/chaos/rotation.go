package chaos

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"

	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Ageing is a talosconfig whose certificate has ended or soon will, and what is wrong with the files beside it.
type Ageing struct {
	// Expired is set for one that has ended.
	Expired bool
	// Trouble is what keeps it from being renewed; empty for nothing.
	Trouble FileTrouble
}

// FileTrouble is something wrong with the files on the operator's computer.
type FileTrouble string

// Troubles with files.
const (
	// NoSecrets and OthersSecrets are about the secrets that a certificate is signed with.
	NoSecrets     FileTrouble = "the secrets file is missing"
	OthersSecrets FileTrouble = "the secrets file is another cluster's"
	// Unwritable is a folder with something in the place where the new file is written first.
	Unwritable FileTrouble = "the talosconfig can't be written"
	// Leftover is what a run that was killed while it wrote has left: it is in nobody's way.
	Leftover FileTrouble = "a killed run left half a talosconfig"
)

// blocks reports whether nothing can be renewed as long as it is there.
func (t FileTrouble) blocks() bool { return t != "" && t != Leftover }

// Rotation is what became of a talosconfig.
type Rotation struct {
	// Torn are the moments at which the file was neither what it had been nor a whole new one. Lost is set if it lost what
	// is not its certificate.
	Torn []string
	Lost bool
	// FirstRenewed and Renewed are set if it has another certificate after the first call, and in the end.
	FirstRenewed, Renewed bool
	// Refusing are the nodes that refuse it in the end, and why.
	Refusing []string
}

// String is the ageing in plain words.
func (a *Ageing) String() string {
	text := "the talosconfig ends within a week"
	if a.Expired {
		text = "the talosconfig has expired"
	}

	if a.Trouble != "" {
		text += ", and " + string(a.Trouble)
	}

	return text
}

func drawAgeing(random *rand.Rand, plan *Plan) {
	plan.Operation.Ageing = &Ageing{Expired: random.IntN(2) == 0,
		Trouble: pick(random, "", "", NoSecrets, OthersSecrets, Unwritable, Leftover)}
}

func (w *world) talosconfig() string {
	return filepath.Join(w.talosDir(), "clusterconfig", "talosconfig")
}

func (w *world) secretsFile() string { return filepath.Join(w.talosDir(), "talsecret.yaml") }

// inTheWay is where a new talosconfig is written first.
func (w *world) inTheWay() string {
	return filepath.Join(w.talosDir(), "clusterconfig", ".talosconfig.talos-mage-tmp")
}

// elsewhereContext is another cluster's part of a talosconfig, with what people write beside it.
const elsewhereContext = "    elsewhere:\n        endpoints: [192.0.2.99] # far away\n        ca: aGVsbG8=\n" +
	"        crt: aGVsbG8=\n        key: aGVsbG8=\n"

// age gives the talosconfig a certificate from long ago, and makes the trouble.
func (w *world) age(_ context.Context, care *Care) error {
	ageing := care.Operation.Ageing
	care.Rotation = &Rotation{}

	if err := w.signOld(ageing.Expired); err != nil {
		return fmt.Errorf("sign an old certificate: %w", err)
	}

	bundle := w.generated.Options.Secrets

	var err error
	if ageing.Trouble == OthersSecrets {
		if bundle, err = clusterfiles.ForeignSecrets(); err != nil {
			return err
		}
	}

	if ageing.Trouble != NoSecrets {
		err = w.writeSecrets(bundle)
	}

	switch ageing.Trouble { //nolint:exhaustive // the others are about the secrets
	case Unwritable:
		err = errors.Join(err, makeFolders(filepath.Join(w.inTheWay(), "full")))
	case Leftover:
		err = errors.Join(err, os.WriteFile(w.inTheWay(), []byte("context: ch"), 0o600))
	}

	if err == nil {
		care.former, err = os.ReadFile(w.talosconfig())
	}

	return err
}

func (w *world) signOld(expired bool) error {
	const (
		year = 365 * 24 * time.Hour
		week = 7 * 24 * time.Hour
	)

	bundle, ago := *w.generated.Options.Secrets, year-week
	if expired {
		ago = year + week
	}

	bundle.Clock = secrets.NewFixedClock(time.Now().Add(-ago))

	signed, err := bundle.GenerateTalosAPIClientCertificateWithTTL(role.MakeSet(role.Admin), year)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what for
	}

	file, err := config.Open(w.talosconfig())
	if err != nil {
		return err //nolint:wrapcheck // as above
	}

	current := file.Contexts[file.Context]
	current.Crt, current.Key = base64.StdEncoding.EncodeToString(signed.Crt), base64.StdEncoding.EncodeToString(signed.Key)

	data, err := file.Bytes()
	if err != nil {
		return err //nolint:wrapcheck // as above
	}

	return os.WriteFile(w.talosconfig(), append(data, elsewhereContext...), 0o600) //nolint:wrapcheck // as above
}

func (w *world) writeSecrets(bundle *secrets.Bundle) error {
	text, err := clustersecrets.Encode(bundle)
	if err != nil {
		return fmt.Errorf("write secrets: %w", err)
	}

	return os.WriteFile(w.secretsFile(), text, 0o600) //nolint:wrapcheck // it names the file
}

// watchTalosconfig reads the file all the time, as somebody would who came when the program had been killed.
func (w *world) watchTalosconfig(ctx context.Context, care *Care) error {
	const often = 100 * time.Millisecond // in the machines' time

	for {
		if torn := w.torn(care); torn != "" {
			w.note(func() { care.Rotation.Torn = append(care.Rotation.Torn, torn) })

			return nil
		}

		if w.lab.Clock().Sleep(ctx, often) != nil {
			return nil //nolint:nilerr // the call is over
		}
	}
}

// torn is what is there in the place of a whole talosconfig; empty if it is the former one or a whole new one.
func (w *world) torn(care *Care) string {
	now, err := os.ReadFile(w.talosconfig())

	switch {
	case err != nil:
		return err.Error()
	case bytes.Equal(now, care.former) || usable(now):
		return ""
	default:
		return fmt.Sprintf("%d bytes", len(now))
	}
}

// usable reports whether a text is a whole talosconfig.
func usable(data []byte) bool {
	file, err := config.FromBytes(data)
	if err != nil || file.Contexts[file.Context] == nil || file.Contexts["elsewhere"] == nil {
		return false
	}

	_, err = base64.StdEncoding.DecodeString(file.Contexts[file.Context].Crt)

	return err == nil
}

// repairFiles takes back what was wrong with the files.
func (w *world) repairFiles(care *Care) error {
	if err := os.RemoveAll(w.inTheWay()); err != nil {
		return fmt.Errorf("make room: %w", err)
	}

	renewed, err := w.renewed(care)
	care.Rotation.FirstRenewed = renewed

	return errors.Join(err, w.writeSecrets(w.generated.Options.Secrets))
}

// renewed reports whether the talosconfig is another one, and notes what it has lost.
func (w *world) renewed(care *Care) (bool, error) {
	now, err := os.ReadFile(w.talosconfig())
	if err != nil {
		return false, fmt.Errorf("read talosconfig: %w", err)
	}

	if withoutClient(now) != withoutClient(care.former) {
		care.Rotation.Lost = true
	}

	return !bytes.Equal(now, care.former), nil
}

// withoutClient is a talosconfig without certificates and keys.
func withoutClient(data []byte) string {
	var kept strings.Builder

	for line := range strings.Lines(string(data)) {
		word := strings.TrimSpace(line)
		if !strings.HasPrefix(word, "crt:") && !strings.HasPrefix(word, "key:") || strings.HasSuffix(word, "aGVsbG8=") {
			kept.WriteString(line)
		}
	}

	return kept.String()
}

// tryTalosconfig asks every node with it.
func (w *world) tryTalosconfig(ctx context.Context, care *Care) error {
	var err error
	if care.Rotation.Renewed, err = w.renewed(care); err != nil {
		return err
	}

	file, err := config.Open(w.talosconfig())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // which the check of what was lost tells
	}

	if err != nil {
		return fmt.Errorf("read talosconfig: %w", err)
	}

	for _, planned := range w.plan.Machines {
		if err := ask(ctx, file, w.node(planned.Name).Endpoint()); err != nil {
			care.Rotation.Refusing = append(care.Rotation.Refusing, fmt.Sprintf("%s: %v", planned.Name, err))
		}
	}

	return nil
}

// ask has a node tell its version.
func ask(ctx context.Context, file *config.Config, endpoint string) error {
	const patience = 30 * time.Second // the wall's: what is refused is refused at once

	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	conn, err := client.New(ctx, client.WithConfig(file), client.WithEndpoints(endpoint))
	if err != nil {
		return err //nolint:wrapcheck // the caller says who was asked
	}
	defer conn.Close() //nolint:errcheck // it was only asked

	_, err = conn.Version(ctx)

	return err //nolint:wrapcheck // as above
}

// rotationExplains reports whether what is wrong with the files makes a problem right.
func (c *Care) rotationExplains(problem Problem) bool {
	if c.Operation.Ageing == nil {
		return false
	}

	right := map[FileTrouble]diagnosis.ID{NoSecrets: diagnosis.RotateRefused, OthersSecrets: diagnosis.RotateRefused,
		Unwritable: diagnosis.FileUnwritable}

	return problem.ID != "" && right[c.Operation.Ageing.Trouble] == problem.ID
}

// rotatedSafely: a talosconfig is renewed whole or not at all, only from the cluster's own secrets, keeps all else that
// it holds, and works on every node.
func rotatedSafely(c *Care) []string {
	if c.Rotation == nil {
		return nil
	}

	var found []string

	for _, torn := range c.Rotation.Torn {
		found = append(found, "for a moment the talosconfig was not whole: "+torn)
	}

	if c.Rotation.Lost {
		found = append(found, "the talosconfig has lost what is not its certificate")
	}

	switch code, blocked := c.First.Code, c.Operation.Ageing.Trouble.blocks(); {
	case blocked && c.Rotation.FirstRenewed:
		found = append(found, fmt.Sprintf("it was renewed although %s", c.Operation.Ageing.Trouble))
	case code == diagnosis.ExitOK && !c.Rotation.FirstRenewed:
		found = append(found, "it was reported as renewed, and is as it was")
	case code != diagnosis.ExitOK && !c.First.Interrupted && c.Rotation.FirstRenewed:
		found = append(found, fmt.Sprintf("it was renewed, and the code is %d", code))
	}

	if !c.Rotation.Renewed {
		found = append(found, "in the end the talosconfig is as it was")
	}

	for _, refusing := range c.Rotation.Refusing {
		found = append(found, "in the end the talosconfig does not work: "+refusing)
	}

	return slices.Clip(found)
}
