package talhelper_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// repository is the path of the repository's root from this package.
var repository = filepath.Join("..", "..", "..", "..")

// runTalhelper runs the program in a folder and returns what it said if it failed.
func runTalhelper(program, dir string, args ...string) error {
	command := exec.Command(program, args...) //nolint:gosec // the program under test
	command.Dir = dir
	command.Env = append(environment(), "HOME="+dir)

	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said

	if err := command.Run(); err != nil {
		return fmt.Errorf("run talhelper %s: %w: %s", strings.Join(args, " "), err, said.String())
	}

	return nil
}

// environment is what talhelper runs with: nothing of the machine's, so that no variable of it is a talconfig's, and no
// proxy or factory is asked. It lives a fraction of a second, so collecting garbage is not worth the while.
func environment() []string {
	return []string{"PATH=/nonexistent", "GOGC=off", "GOMAXPROCS=1", "HTTPS_PROXY=http://127.0.0.1:1",
		"HTTP_PROXY=http://127.0.0.1:1"}
}

// genconfig makes the machine configs of the talconfig in dir, in dir/clusterconfig, without asking an image factory.
func genconfig(program, dir string) error {
	return runTalhelper(program, dir, "genconfig", "--offline-mode")
}

// bundle is the secrets that all clusters of this test have. Making them takes most of a second.
var bundle = sync.OnceValues(func() (*secrets.Bundle, error) {
	return secrets.NewBundle(secrets.NewClock(), config.TalosVersion1_13)
})

// write puts a folder on the disk, with the cluster's secrets as talhelper keeps them.
func write(tb testing.TB, files map[string]string) string {
	tb.Helper()

	dir := tb.TempDir()

	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(tb, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(tb, os.WriteFile(path, []byte(text), 0o600))
	}

	secret, err := talsecret()
	require.NoError(tb, err)
	require.NoError(tb, os.WriteFile(filepath.Join(dir, "talsecret.yaml"), secret, 0o600))

	return dir
}

// talsecret is the bundle in talhelper's form.
var talsecret = sync.OnceValues(func() ([]byte, error) {
	made, err := bundle()
	if err != nil {
		return nil, err
	}

	return yaml.Marshal(made)
})

// schemaFields are the paths of all fields in the JSON schema that the program prints, without marks for lists.
func schemaFields(tb testing.TB, program string) []string {
	tb.Helper()

	path := filepath.Join(tb.TempDir(), "schema.json")
	require.NoError(tb, runTalhelper(program, filepath.Dir(path), "genschema", "--file", path))

	text, err := os.ReadFile(path)
	require.NoError(tb, err)

	var schema struct {
		Ref  string                `json:"$ref"`
		Defs map[string]definition `json:"$defs"`
	}

	require.NoError(tb, json.Unmarshal(text, &schema))

	return fieldsOf(definition{Ref: schema.Ref}, schema.Defs, "")
}
