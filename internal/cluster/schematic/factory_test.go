package schematic_test

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// texts that YAML has to quote, break or leave alone.
var texts = []string{
	"net.ifnames=0", "talos.logging.kernel=udp://127.0.0.1:6050", "console=ttyS0,115200n8", "a: b", "- a", "#", "'", "\"",
	"yes", "off", "1:20", "null", "~", "0x10", "1e3",
	" lead", "trail ", "two\nlines\n", "tab\there", "ä", "\u2028", "%", "@file", "&a", "*a", "!x", "{}", "[]", "|", ">",
	"", strings.Repeat("long ", 60),
	"siderolabs/qemu-guest-agent", "siderolabs/iscsi-tools", "2026-01-01", "1_000", ":", "-", "?", "a#b", "a #b", "\\n",
	"\x7f", "=", "<<",
}

// drawn writes a random one, in JSON's form, which YAML takes.
func drawn(random *rand.Rand) string {
	text := func() string { return fmt.Sprintf("%q", strings.ToValidUTF8(texts[random.IntN(len(texts))], "")) }
	quoted := func() string { return strings.NewReplacer(`\x7f`, `\u007f`).Replace(text()) }

	list := func() string {
		items := make([]string, random.IntN(4))
		for i := range items {
			items[i] = quoted()
		}

		return "[" + strings.Join(items, ",") + "]"
	}

	parts := []string{
		`"extraKernelArgs":` + list(),
		fmt.Sprintf(`"meta":[{"key":%d,"value":%s}]`, random.IntN(256), quoted()),
		`"systemExtensions":{"officialExtensions":` + list() + `}`,
		`"bootloader":"` + []string{"none", "dual-boot", "sd-boot", "grub"}[random.IntN(4)] + `"`,
		fmt.Sprintf(`"secureboot":{"enrollKeys":"%s","includeWellKnownCertificates":%t}`,
			[]string{"", "off", "force"}[random.IntN(3)], random.IntN(2) == 0),
		fmt.Sprintf(`"diskImage":{"sectorSize":%d}`, random.IntN(2)*4096),
		`"embeddedMachineConfiguration":` + quoted(),
	}

	random.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })

	whole := []string{`"customization":{` + strings.Join(parts[:random.IntN(len(parts)+1)], ",") + "}"}

	if random.IntN(2) == 0 {
		whole = append(whole, fmt.Sprintf(`"overlay":{"image":%s,"name":%s,"options":{"b":%s,"a":%s,"n":%d,"t":%t}}`,
			quoted(), quoted(), quoted(), list(), random.IntN(9), random.IntN(2) == 0))
	}

	if random.IntN(4) == 0 {
		whole = append(whole, `"owner":`+quoted())
	}

	return "{" + strings.Join(whole, ",") + "}"
}

// parse reads one as the factory does: an unknown key is an error.
func parse(text string) (*schematic.Schematic, error) {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)

	parsed := &schematic.Schematic{}

	return parsed, decoder.Decode(parsed)
}

// factory gives the ids that the Image Factory's own package has for schematics, or why it refuses one.
func factory(t *testing.T, schematics []string) []string {
	t.Helper()

	command := exec.CommandContext(t.Context(), tool.Find(t, "schematicids"))
	command.Stdin = strings.NewReader(strings.Join(schematics, "\n") + "\n")
	output, err := command.Output()
	require.NoError(t, err)

	ids := strings.Split(strings.TrimSuffix(string(output), "\n"), "\n")
	require.Len(t, ids, len(schematics))

	return ids
}

func TestIDsAreTheFactorysOwn(t *testing.T) {
	t.Parallel()

	random := rand.New(rand.NewPCG(1, 1))
	schematics := make([]string, 0, 2000)

	for range cap(schematics) {
		schematics = append(schematics, drawn(random))
	}

	for i, want := range factory(t, schematics) {
		parsed, err := parse(schematics[i])
		require.NoError(t, err, schematics[i])

		got, err := parsed.ID()
		require.NoError(t, err)
		require.Equal(t, want, got, schematics[i])
	}
}

func TestTheFactoryRefusesWhatWeDo(t *testing.T) {
	t.Parallel()

	schematics := []string{`{"customisation":{}}`, `{"customization":{"bootloader":"lilo"}}`,
		`{"customization":{"meta":[{"key":256}]}}`, `[]`, `{"overlay":"x"}`}

	for i, said := range factory(t, schematics) {
		_, err := parse(schematics[i])
		require.Error(t, err)
		require.Contains(t, said, "refused: ", schematics[i])
	}
}
