package suggest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/suggest"
)

func TestWord(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		word       string
		candidates []string
		want       string
	}{
		"a missing letter":              {"paralel", []string{"sequential", "parallel"}, "parallel"},
		"two letters swapped":           {"hotsname", []string{"hostname", "ipAddress"}, "hostname"},
		"another case":                  {"IPaddress", []string{"hostname", "ipAddress"}, "ipAddress"},
		"the first of two as close":     {"cat", []string{"car", "can"}, "car"},
		"the closer of two":             {"no-rebot", []string{"reboot", "no-reboot"}, "no-reboot"},
		"nothing alike":                 {"banana", []string{"sequential", "parallel"}, ""},
		"a short word is no guess":      {"x", []string{"y"}, ""},
		"nothing typed":                 {"", []string{"auto"}, ""},
		"no candidates":                 {"auto", nil, ""},
		"letters of more than one byte": {"größe", []string{"grösse", "größen"}, "größen"},
		"an exact word":                 {"auto", []string{"try", "auto"}, "auto"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			require.Equal(t, tt.want, suggest.Word(tt.word, tt.candidates))
		})
	}
}

func TestSlip(t *testing.T) {
	t.Parallel()

	for word, want := range map[string]string{
		"max-podss": "max-pods", "mxa-pdos": "max-pods", "max-processes": "", "event-storage-age": "", "v1": "",
	} {
		require.Equal(t, want, suggest.Slip(word, []string{"max-pods", "event-storage-limit", "v"}), word)
	}
}
