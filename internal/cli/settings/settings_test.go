package settings_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/plainfile"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/fuzztest"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

func TestDefaults(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()

	got, err := settings.Load(nil, nil, dir)
	require.NoError(t, err)

	require.Equal(t, dir, got.RootDir)
	require.Equal(t, filepath.Join(dir, "talos"), got.TalosDir)
	require.Equal(t, filepath.Join(dir, "talos", "clusterconfig"), got.ClusterConfigDir)
	require.Equal(t, filepath.Join(dir, "talos", "clusterconfig", "talosconfig"), got.Talosconfig)
	require.Equal(t, filepath.Join(dir, "kubeconfig"), got.Kubeconfig)
	require.Equal(t, filepath.Join(dir, "age.key"), got.SopsAgeKeyFile)

	// The values that the scripts' page documented.
	require.Equal(t, 3, got.ReachabilityRetries)
	require.Equal(t, 2*time.Second, got.ReachabilityDelay)
	require.Equal(t, 3*time.Second, got.InitialDelay)
	require.Equal(t, 60*time.Second, got.MaxDelay)
	require.Equal(t, 5, got.MaxRetries)
	require.InDelta(t, 2, got.BackoffMultiplier, 0)
	require.Equal(t, 5*time.Minute, got.VerificationTimeout)
	require.Equal(t, 5*time.Second, got.CheckInterval)
	require.Equal(t, 2, got.MaxParallel.Of(10))

	require.Equal(t, "info", got.LogLevel)
	require.Equal(t, "text", got.LogFormat)
	require.Equal(t, "sequential", got.ApplyMode)
	require.Equal(t, "auto", got.Mode)
	require.False(t, got.DryRun)
	require.Empty(t, got.Node)
	require.Empty(t, got.NodeAddresses)
	require.InDelta(t, 1, got.ClockScale, 0)
}

func TestValuesThatAreTaken(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		variable string
		get      func(*settings.Settings) any
		want     any
	}{
		"bare number of seconds": {"VERIFICATION_TIMEOUT=300",
			func(s *settings.Settings) any { return s.VerificationTimeout }, 5 * time.Minute},
		"fraction of a second": {"CHECK_INTERVAL=0.5", func(s *settings.Settings) any { return s.CheckInterval },
			500 * time.Millisecond},
		"duration with units": {"INSTALL_TIMEOUT=1h30m", func(s *settings.Settings) any { return s.InstallTimeout },
			90 * time.Minute},
		"no wait at all":        {"NODE_WAIT=0", func(s *settings.Settings) any { return s.NodeWait }, time.Duration(0)},
		"spaces around a value": {"MAX_RETRIES= 7 ", func(s *settings.Settings) any { return s.MaxRetries }, 7},
		"no retries":            {"MAX_RETRIES=0", func(s *settings.Settings) any { return s.MaxRetries }, 0},
		"multiplier": {"BACKOFF_MULTIPLIER=1.5", func(s *settings.Settings) any { return s.BackoffMultiplier },
			1.5},
		"word in capitals":      {"LOG_LEVEL=DEBUG", func(s *settings.Settings) any { return s.LogLevel }, "debug"},
		"switch as a digit":     {"DRY_RUN=1", func(s *settings.Settings) any { return s.DryRun }, true},
		"switch as a word":      {"NO_WAIT=yes", func(s *settings.Settings) any { return s.NoWait }, true},
		"switch that is off":    {"NO_WAIT=false", func(s *settings.Settings) any { return s.NoWait }, false},
		"any value of NO_COLOR": {"NO_COLOR=please", func(s *settings.Settings) any { return s.NoColor }, true},
		"empty NO_COLOR":        {"NO_COLOR=", func(s *settings.Settings) any { return s.NoColor }, false},
		"empty counts as unset": {"MODE=", func(s *settings.Settings) any { return s.Mode }, "auto"},
		"mode":                  {"MODE=no-reboot", func(s *settings.Settings) any { return s.Mode }, "no-reboot"},
		"list": {"NODE=cp1, cp[192.0.2.11],,worker1 ", func(s *settings.Settings) any { return s.Node },
			[]string{"cp1", "cp[192.0.2.11]", "worker1"}},
		"share of the nodes": {"MAX_PARALLEL=50%", func(s *settings.Settings) any { return s.MaxParallel.Of(5) }, 3},
		"check to skip": {
			"SKIP_CHECKS=tm036", func(s *settings.Settings) any { return s.SkipChecks }, []string{string(diagnosis.BadSetting)},
		},
		"fingerprint": {
			"CERT_FINGERPRINTS=AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
			func(s *settings.Settings) any { return len(s.CertFingerprints) }, 1,
		},
		"addresses": {
			"NODE_ADDRESSES=cp1=192.0.2.73, " +
				"cp2=[2001:db8::5]:50000,cp3=2001:db8::6,cp[192.0.2.11]=node.example.com:50001,w=[2001:db8::7],x=node-1",
			func(s *settings.Settings) any { return s.NodeAddresses },
			settings.Addresses{
				"cp1": "192.0.2.73", "cp2": "[2001:db8::5]:50000", "cp3": "2001:db8::6",
				"cp[192.0.2.11]": "node.example.com:50001", "w": "2001:db8::7", "x": "node-1",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got, err := settings.Load([]string{tt.variable}, nil, t.TempDir())
			require.NoError(t, err)
			require.Equal(t, tt.want, tt.get(got))
		})
	}
}

func TestBadValuesNameTheVariableTheValueAndWhatItTakes(t *testing.T) {
	t.Parallel()

	for variable, want := range map[string]string{
		"NODE_WAIT=soon":               `NODE_WAIT="soon": NODE_WAIT takes a duration: seconds (300) or with units (5m, 1h30m)`,
		"NODE_WAIT=-5":                 `NODE_WAIT="-5": a duration can't be negative; NODE_WAIT takes a duration`,
		"NODE_WAIT=-5m":                `NODE_WAIT="-5m": a duration can't be negative; `,
		"NODE_WAIT=5 minutes":          `NODE_WAIT="5 minutes": `,
		"NODE_WAIT=99999999999":        `NODE_WAIT="99999999999": longer than 292 years; `,
		"NODE_WAIT=NaN":                `NODE_WAIT="NaN": NODE_WAIT takes a duration`,
		"DIAL_TIMEOUT=0":               `DIAL_TIMEOUT="0": too small; DIAL_TIMEOUT takes a duration above 0`,
		"MAX_RETRIES=many":             `MAX_RETRIES="many": MAX_RETRIES takes a whole number from 0 up`,
		"MAX_RETRIES=-1":               `MAX_RETRIES="-1": too small; MAX_RETRIES takes a whole number from 0 up`,
		"MAX_RETRIES=2.5":              `MAX_RETRIES="2.5": MAX_RETRIES takes a whole number from 0 up`,
		"NODE_REACHABILITY_RETRIES=0":  `NODE_REACHABILITY_RETRIES="0": too small; `,
		"BACKOFF_MULTIPLIER=0.5":       `BACKOFF_MULTIPLIER="0.5": too small; BACKOFF_MULTIPLIER takes a number from 1 up`,
		"CLOCK_SCALE=Inf":              `CLOCK_SCALE="Inf": CLOCK_SCALE takes a number from 1 up`,
		"APPLY_MODE=paralel":           `APPLY_MODE="paralel": APPLY_MODE takes sequential or parallel; did you mean "parallel"? [TM036]. Next: APPLY_MODE=parallel`,
		"LOG_LEVEL=loud":               `LOG_LEVEL="loud": LOG_LEVEL takes debug, info, warn or error [TM036]. Next: correct LOG_LEVEL`,
		"MODE=noreboot":                `did you mean "no-reboot"?`,
		"DRY_RUN=perhaps":              `DRY_RUN="perhaps": DRY_RUN takes true or false`,
		"MAX_PARALLEL=0":               `MAX_PARALLEL="0": at least one node must be worked on; MAX_PARALLEL takes a number of nodes (2) or a share of them (50%)`,
		"MAX_PARALLEL=101%":            `more than all nodes`,
		"MAX_PARALLEL=half":            `MAX_PARALLEL="half": MAX_PARALLEL takes a number of nodes`,
		"NODE_ADDRESSES=192.0.2.1":     `"192.0.2.1" is not name=address; NODE_ADDRESSES takes name=host or name=host:port`,
		"NODE_ADDRESSES==192.0.2.1":    `is not name=address`,
		"NODE_ADDRESSES=cp1=":          `is not name=address`,
		"NODE_ADDRESSES=a=1.1.1.1,a=b": `node "a" has two addresses`,
		"NODE_ADDRESSES=a=192.0.2.300": `address "192.0.2.300" of node "a": not an IP address`,
		"NODE_ADDRESSES=a=192.0.2":     `not an IP address`,
		"NODE_ADDRESSES=a=[192.0.2.x]": `no IP address in the brackets`,
		"NODE_ADDRESSES=a=b:0":         `the port is not a number from 1 to 65535`,
		"NODE_ADDRESSES=a=b:65536":     `the port is not a number from 1 to 65535`,
		"NODE_ADDRESSES=a=2001:db8:x":  `not host:port (IPv6 with a port needs brackets)`,
		"NODE_ADDRESSES=a=no way":      `neither an IP address nor a DNS name`,
		"NODE_ADDRESSES=a=b..c":        `neither an IP address nor a DNS name`,
		"CERT_FINGERPRINTS=abc":        `"abc" is no fingerprint; CERT_FINGERPRINTS takes base64 of SHA-256 sums`,
		"SKIP_CHECKS=TM999":            `SKIP_CHECKS="TM999": there is no check of this id; `,
	} {
		t.Run(variable, func(t *testing.T) {
			t.Parallel()

			_, err := settings.Load([]string{variable}, nil, t.TempDir())
			require.ErrorContains(t, err, want)
			require.True(t, strings.HasPrefix(err.Error(), "settings: "), err.Error())

			problem, ok := diagnosis.AsProblem(err)
			require.True(t, ok)
			require.Equal(t, diagnosis.ExitBadInput, problem.ExitCode())
			require.Equal(t, diagnosis.BadSetting, problem.ID)
		})
	}
}

func TestChecksOfIdentityCannotBeSkipped(t *testing.T) {
	t.Parallel()

	for _, entry := range diagnosis.Catalogue() {
		if !entry.Unskippable {
			continue
		}

		_, err := settings.Load([]string{"SKIP_CHECKS=" + string(entry.ID)}, nil, t.TempDir())

		problem, ok := diagnosis.AsProblem(err)
		require.True(t, ok)
		require.Equal(t, diagnosis.UnskippableCheck, problem.ID)
		require.Equal(t, diagnosis.ExitBadInput, problem.ExitCode())
		require.ErrorContains(t, err, "SKIP_CHECKS names "+string(entry.ID))

		_, err = settings.Load(nil, settings.Overrides{"skipChecks": string(entry.ID)}, t.TempDir())
		require.ErrorContains(t, err, "-skipChecks names "+string(entry.ID))
		require.NotContains(t, err.Error(), "SKIP_CHECKS")
	}
}

// Messages name a setting as people gave it.
func TestASettingIsNamedAsItWasGiven(t *testing.T) {
	t.Parallel()

	given, err := settings.Load([]string{"NODE=cp1", "MODE=try"}, settings.Overrides{"node": "cp2"}, t.TempDir())
	require.NoError(t, err)
	require.Equal(t, "-node", given.NameOf("NODE"))
	require.Equal(t, "MODE", given.NameOf("MODE"))
	require.Equal(t, "SOPS_AGE_KEY_FILE", given.NameOf("SOPS_AGE_KEY_FILE"), "no flag has it")
	require.Equal(t, "-assumeEmpty", given.NameOf("-assumeEmpty"), "it is a flag alone")

	given, err = settings.Load([]string{"NODE=cp1"}, settings.Overrides{"<address>": "cp2"}, t.TempDir())
	require.NoError(t, err)
	require.Equal(t, []string{"cp2"}, given.Node)
	require.Equal(t, "<address>", given.NameOf("NODE"))
}

func TestAllBadValuesAreToldAtOnce(t *testing.T) {
	t.Parallel()

	_, err := settings.Load([]string{"NODE_WAIT=soon", "MAX_RETRIES=many"}, nil, t.TempDir())
	require.Error(t, err)

	got := strings.Split(err.Error(), "\n")
	require.Len(t, got, 2)
	require.Contains(t, err.Error(), "NODE_WAIT=")
	require.Contains(t, err.Error(), "MAX_RETRIES=")
}

func TestOverridesGoOverTheEnvironment(t *testing.T) {
	t.Parallel()

	got, err := settings.Load(
		[]string{"MAX_PARALLEL=4", "NODE=cp1", "DRY_RUN=true", "MODE=try"},
		settings.Overrides{"parallel": "50%", "dryRun": "false", "node": ""}, t.TempDir(),
	)

	require.NoError(t, err)
	require.Equal(t, "50%", got.MaxParallel.String())
	require.False(t, got.DryRun)
	require.Empty(t, got.Node, "an empty override takes the default")
	require.Equal(t, "try", got.Mode)
}

func TestABadOverrideNamesItsFlag(t *testing.T) {
	t.Parallel()

	_, err := settings.Load([]string{"MAX_PARALLEL=4"}, settings.Overrides{"parallel": "lots"}, t.TempDir())

	require.ErrorContains(t, err, `-parallel="lots": -parallel takes a number of nodes (2) or a share of them (50%)`)
}

func TestAnUnknownOverrideIsRefused(t *testing.T) {
	t.Parallel()

	_, err := settings.Load(nil, settings.Overrides{"noSuch": "1"}, t.TempDir())

	require.ErrorContains(t, err, "-noSuch")
}

func TestABadVariableUnderAGoodOverrideDoesNotMatter(t *testing.T) {
	t.Parallel()

	got, err := settings.Load([]string{"MAX_PARALLEL=lots"}, settings.Overrides{"parallel": "3"}, t.TempDir())

	require.NoError(t, err)
	require.Equal(t, 3, got.MaxParallel.Of(10))
}

// losses are the flags that permit loss, with the variables that did so once.
var losses = map[string]string{
	"allowAmbiguousDisk": "ALLOW_AMBIGUOUS_DISK", "assumeEmpty": "ASSUME_EMPTY", "force": "FORCE",
	"newSecrets": "NEW_SECRETS", "reboot": "REBOOT", "update": "UPDATE",
}

func TestWhatPermitsLossComesFromTheCommandLineAlone(t *testing.T) {
	t.Parallel()

	byDefault, err := settings.Load(nil, nil, t.TempDir())
	require.NoError(t, err)

	retired := map[string]string{}

	for _, knob := range settings.Table() {
		if knob.Retired != "" {
			retired[knob.Flag] = knob.Retired
		}
	}

	require.Equal(t, losses, retired)

	for flag, variable := range losses {
		dir := byDefault.RootDir

		for _, name := range []string{variable, "-" + flag} {
			got, err := settings.Load([]string{name + "=true"}, nil, dir)
			require.NoError(t, err)
			require.Equal(t, byDefault, got, name)
		}

		got, err := settings.Load(nil, settings.Overrides{flag: "true"}, dir)
		require.NoError(t, err)
		require.NotEqual(t, byDefault, got, flag)

		require.Equal(t, []string{variable + " is set but ignored: what permits loss is given on the command line " +
			"alone, as -" +
			flag}, settings.Retired([]string{variable + "=true"}))
	}

	require.Empty(t, settings.Retired([]string{"FORCE=", "DRY_RUN=true", "REBOOTS=1"}))
}

func TestPaths(t *testing.T) {
	t.Parallel()

	repository := t.TempDir()
	inside := filepath.Join(repository, "talos", "deep")
	require.NoError(t, os.MkdirAll(inside, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(repository, ".git"), []byte("gitdir: elsewhere\n"), 0o600))

	list := strings.Join([]string{"", filepath.Join(repository, "first"), filepath.Join(repository, "second")},
		string(os.PathListSeparator))

	for name, tt := range map[string]struct {
		environ []string
		get     func(*settings.Settings) string
		want    string
	}{
		"the root is the git top level": {nil, func(s *settings.Settings) string { return s.RootDir }, repository},
		"relative to the working directory": {
			[]string{"TALOS_DIR=../other"}, func(s *settings.Settings) string { return s.TalosDir },
			filepath.Join(repository, "talos", "other"),
		},
		"defaults build on given paths": {
			[]string{"ROOT_DIR=" + filepath.FromSlash("/srv/lab")}, func(s *settings.Settings) string { return s.Talosconfig },
			filepath.FromSlash("/srv/lab/talos/clusterconfig/talosconfig"),
		},
		"a dollar in a given path is a dollar": {
			[]string{"TALOS_DIR=" + filepath.FromSlash("/srv/$ROOT_DIR")},
			func(s *settings.Settings) string { return s.TalosDir },
			filepath.FromSlash("/srv/$ROOT_DIR"),
		},
		"the first path of a list": {
			[]string{"KUBECONFIG=" + list}, func(s *settings.Settings) string { return s.Kubeconfig },
			filepath.Join(repository, "first"),
		},
		"unclean paths are cleaned": {
			[]string{"CLUSTERCONFIG_DIR=./a/../b/"}, func(s *settings.Settings) string { return s.ClusterConfigDir },
			filepath.Join(inside, "b"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got, err := settings.Load(tt.environ, nil, inside)
			require.NoError(t, err)
			require.Equal(t, tt.want, tt.get(got))
		})
	}
}

func TestEnvironIsWhatTheTaskfileSets(t *testing.T) {
	t.Parallel()

	root := filepath.FromSlash("/srv/lab")

	got, err := settings.Load([]string{"ROOT_DIR=" + root}, nil, t.TempDir())
	require.NoError(t, err)
	require.Equal(t, []string{
		"KUBECONFIG=" + filepath.Join(root, "kubeconfig"),
		"SOPS_AGE_KEY_FILE=" + filepath.Join(root, "age.key"),
		"TALOSCONFIG=" + filepath.Join(root, "talos", "clusterconfig", "talosconfig"),
	}, got.Environ())
}

func TestParallelOf(t *testing.T) {
	t.Parallel()

	for text, want := range map[string][]int{ // of 0, 1, 3 and 10 nodes
		"1":    {1, 1, 1, 1},
		"4":    {4, 4, 4, 4},
		"1%":   {1, 1, 1, 1},
		"34%":  {1, 1, 2, 4},
		"50%":  {1, 1, 2, 5},
		"100%": {1, 1, 3, 10},
	} {
		var parallel settings.Parallel

		require.NoError(t, parallel.UnmarshalText([]byte(text)))
		require.Equal(t, text, parallel.String())
		require.Equal(t, want, []int{parallel.Of(0), parallel.Of(1), parallel.Of(3), parallel.Of(10)}, text)
	}
}

func TestEveryKnobIsDescribed(t *testing.T) {
	t.Parallel()

	table := settings.Table()

	for field := range reflect.TypeFor[settings.Settings]().Fields() {
		require.Equal(t, field.IsExported(), field.Tag != "", field.Name)
	}

	names, flags := map[string]bool{}, map[string]bool{}

	for _, knob := range table {
		require.NotEmpty(t, knob.Name)
		require.NotEmpty(t, knob.Type, knob.Name)
		require.NotEmpty(t, knob.Group, knob.Name)
		require.True(t, strings.HasSuffix(knob.Doc, "."), knob.Name)
		require.False(t, names[knob.Name], "%s is there twice", knob.Name)
		names[knob.Name] = true

		if knob.Flag != "" {
			require.False(t, flags[knob.Flag], "-%s is there twice", knob.Flag)
			flags[knob.Flag] = true
		}
	}
}

// The scripts' constants keep their names.
func TestTheScriptsKnobsKeepTheirNames(t *testing.T) {
	t.Parallel()

	for _, name := range []string{
		"TALOSCONFIG", "ROOT_DIR", "LOG_LEVEL", "NODE_REACHABILITY_RETRIES", "NODE_REACHABILITY_DELAY", "INITIAL_DELAY",
		"MAX_DELAY",
		"MAX_RETRIES", "BACKOFF_MULTIPLIER", "VERIFICATION_TIMEOUT", "CHECK_INTERVAL", "KUBECONFIG", "SOPS_AGE_KEY_FILE",
	} {
		_, found := settings.Lookup(name)
		require.True(t, found, name)
	}
}

func TestThePageOfSettingsIsTrue(t *testing.T) {
	t.Parallel()

	golden.Assert(t, filepath.Join("..", "..", "..", "docs", "settings.md"), settings.Markdown())
}

// FuzzSettings gives each setting any value.
func FuzzSettings(f *testing.F) {
	knobs := settings.Table()

	for number, knob := range knobs {
		for _, value := range []string{knob.Default, "", "50%", "1h30m", "cp1=192.0.2.73,cp2=[2001:db8::5]:50000", "a:b",
			"-1", "1e400", "$ROOT_DIR/x"} {
			f.Add(uint(number), value)
		}
	}

	f.Fuzz(func(t *testing.T, number uint, value string) {
		knob := knobs[number%uint(len(knobs))]

		fuzztest.Bounded(t, func() {
			_, err := settings.Load([]string{knob.Name + "=" + value}, nil, t.TempDir())
			if err != nil {
				require.ErrorContains(t, err, knob.Name)
			}
		})
	})
}

// What somebody pasted into the wrong place is not told to the whole terminal.
func TestNoKeyIsEchoed(t *testing.T) {
	t.Parallel()

	for name, key := range map[string]string{
		"an age key":      "AGE-SECRET-KEY-1PLANTEDPLANTED",
		"a token":         "abcdef.planted0planted0",
		"random bytes":    "PLANTEDplanted0123456789PLANTEDplanted=",
		"a file's text":   "apiVersion: v1\nplanted: {}\n",
		"a Proxmox token": "root@pam!lab=planted-0000",
	} {
		for _, knob := range settings.Table() {
			var environ []string

			given := settings.Overrides{}
			if knob.TypedAlone() {
				given[cmp.Or(knob.Flag, strings.Join(knob.Arguments, ""))] = key
			} else {
				environ = append(environ, knob.Name+"="+key)
			}

			_, err := settings.Load(environ, given, t.TempDir())
			if err != nil {
				require.NotContains(t, strings.ToLower(err.Error()), "planted", "%s in %s", name, knob.Name)
			} else {
				require.NotEqual(t, "path", knob.Type, "%s as %s", name, knob.Name)
			}
		}
	}
}

func TestTheProxmoxEndpointIsAURL(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"", "https://pve.example.net:8006/", "http://[2001:db8::1]:8006/api2/json",
		"https://pve1.example.net:8006, https://pve2.example.net:8006"} {
		_, err := settings.Load([]string{"PROXMOX_VE_ENDPOINT=" + text}, nil, t.TempDir())
		require.NoError(t, err)
	}

	for _, text := range []string{"notaurl", "pve.example.net:8006", "https://", "ftp://pve.example.net", "https://a b"} {
		_, err := settings.Load([]string{"PROXMOX_VE_ENDPOINT=" + text}, nil, t.TempDir())
		require.ErrorContains(t, err, fmt.Sprintf("=%q: PROXMOX_VE_ENDPOINT takes the URL of a server", text))
	}

	for text, shown := range map[string]string{
		"ftp://root:hunter2@pve":                         "ftp://(masked)@pve",
		"https://root:hunter 2@pve":                      "https://(masked)@pve",
		"https://root:hun,ter2@pve":                      "https://(masked)@pve",
		"https://root:hunter2@pve1,ftp://x:hunter2@pve2": "https://(masked)@pve2",
		"root:hunter2@pve":                               "(masked)@pve",
		"https://root:hun\nter2@pve":                     "https://(masked)@pve",
	} {
		_, err := settings.Load([]string{"PROXMOX_VE_ENDPOINT=" + text}, nil, t.TempDir())
		require.ErrorContains(t, err, fmt.Sprintf("=%q: PROXMOX_VE_ENDPOINT takes the URL of a server", shown))
	}
}

func TestAProxmoxTokenInTheWrongFormIsNeverShown(t *testing.T) {
	t.Parallel()

	const random = "0a1b2c3d-0000-4000-8000-00000000abcd"

	load := func(endpoints, tokens string) error {
		_, err := settings.Load([]string{"PROXMOX_VE_ENDPOINT=" + endpoints, "PROXMOX_VE_API_TOKEN=" + tokens}, nil,
			t.TempDir())

		return err
	}

	good := "audit@pve!mage=" + random
	for _, text := range []string{"", good, "root@pam!a-b.c=" + strings.ToUpper(random)} {
		require.NoError(t, load("https://a", text))
	}

	require.NoError(t, load("https://a,https://b", good+", "+good))
	require.NoError(t, load("https://a,https://b", good))

	for _, text := range []string{
		random, "audit@pve=" + random, "audit!mage=" + random, "audit@pve!mage:" + random, "audit@pve!mage",
		"PVEAPIToken=" + good, "audit@pve!mage=0a1b2c3d", "audit@pve!mage=" + random + random, good + "," + random,
	} {
		err := load("https://a", text)
		require.ErrorContains(t, err, "PROXMOX_VE_API_TOKEN takes user@realm!name=uuid", text)
		require.NotContains(t, err.Error(), "0a1b2c3d", text)
		require.NotContains(t, err.Error(), "audit", text)
	}

	require.ErrorContains(t, load("https://a", good+","+good),
		"PROXMOX_VE_ENDPOINT names 1 hosts, PROXMOX_VE_API_TOKEN has 2 tokens")
}

// What can't be read to its end is refused before anybody tries, whichever setting names it.
func TestInputsAreFilesOfASaneSize(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	large := filepath.Join(folder, "large")
	require.NoError(t, os.WriteFile(large, make([]byte, plainfile.MaxSize+1), 0o600))

	for _, name := range []string{"TALOSCONFIG", "KUBECONFIG", "SOPS_AGE_KEY_FILE", "CILIUM_VALUES"} {
		for _, path := range []string{large, "large"} {
			_, err := settings.Load([]string{name + "=" + path}, nil, folder)
			require.ErrorContains(t, err, fmt.Sprintf("%s=%q: it has 4.0 MB, and at most 4 MB are read; %s takes a path", name,
				large, name))
		}
	}

	_, err := settings.Load(nil, settings.Overrides{"from": large}, folder)
	require.ErrorContains(t, err, "-from=")

	// A default is judged like any other value, and what is not there is somebody else's to judge.
	require.NoError(t, os.Symlink(large, filepath.Join(folder, "kubeconfig")))
	_, err = settings.Load([]string{"ROOT_DIR=" + folder}, nil, folder)
	require.ErrorContains(t, err, "KUBECONFIG=")

	_, err = settings.Load([]string{"KUBECONFIG=nowhere", "TALOSCONFIG=/dev/null"}, nil, folder)
	require.NoError(t, err)
}
