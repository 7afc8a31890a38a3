package imagefactory_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	theirs "github.com/siderolabs/image-factory/pkg/schematic"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	ours "github.com/talos-mage/talos-mage/internal/cluster/schematic"
)

// texts that YAML has to quote, break or leave alone.
var texts = []string{
	"net.ifnames=0", "talos.logging.kernel=udp://127.0.0.1:6050", "console=ttyS0,115200n8", "a: b", "- a", "#", "'", "\"",
	"yes", "null", "~", "0x10", "1e3",
	" lead", "trail ", "two\nlines\n", "tab\there", "ä", "\u2028", "%", "@file", "&a", "*a", "!x", "{}", "[]", "|", ">",
	"", strings.Repeat("long ", 60),
	"siderolabs/qemu-guest-agent", "siderolabs/iscsi-tools", "2026-01-01", "1_000", ":", "-", "?", "a#b", "a #b", "\\n",
	"\x7f", "=", "<<",
}

// schematic writes a random one, in JSON's form, which YAML takes.
func schematic(random *rand.Rand) string {
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
func parse(text string) (*ours.Schematic, error) {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)

	parsed := &ours.Schematic{}

	return parsed, decoder.Decode(parsed)
}

func TestIDsAreTheFactorysOwn(t *testing.T) {
	t.Parallel()

	random := rand.New(rand.NewPCG(1, 1))

	for range 2000 {
		text := schematic(random)

		their, err := theirs.Unmarshal([]byte(text))
		require.NoError(t, err, text)

		our, err := parse(text)
		require.NoError(t, err, text)

		want, err := their.ID()
		require.NoError(t, err)

		got, err := our.ID()
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
}

func TestWhatTheFactoryRefusesIsRefused(t *testing.T) {
	t.Parallel()

	for _, text := range []string{`{"customisation":{}}`, `{"customization":{"bootloader":"lilo"}}`,
		`{"customization":{"meta":[{"key":256}]}}`, `[]`, `{"overlay":"x"}`} {
		_, their := theirs.Unmarshal([]byte(text))
		_, our := parse(text)
		require.Equal(t, their == nil, our == nil, text)
		require.Error(t, our)
	}
}
