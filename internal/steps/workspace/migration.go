package workspace

import (
	"bytes"
	"context"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/machineconfig/migrate"
)

// Migration plans how the files that declare the cluster are rewritten. Throwaway secrets stand in where the cluster's
// own are not here, for the reason that is told.
func (w *Workspace) Migration(ctx context.Context, newDefaults bool) (plan *migrate.Plan, standIn string, err error) {
	variables, err := w.Cluster.Variables()
	if err != nil {
		return nil, "", BadInput(err)
	}

	bundle, standIn, err := w.secretsOrStandIn(variables)
	if err != nil {
		return nil, "", BadInput(err)
	}

	plan, err = migrate.Make(migrate.Options{Secrets: bundle, Now: CertificateTime(), NewDefaults: newDefaults,
		Load: func(files map[string][]byte, contract string) (*inventory.Cluster, error) {
			return w.loadAs(ctx, files, contract)
		},
		Encrypt: func(path string, plain, former []byte) ([]byte, error) {
			return w.Sops().EncryptAgain(ctx, w.Files.Shown(path), plain, former)
		}})

	return plan, standIn, err //nolint:wrapcheck // it names the files
}

// loadAs reads the cluster with files taken for others.
func (w *Workspace) loadAs(ctx context.Context, files map[string][]byte, contract string) (*inventory.Cluster, error) {
	options := w.inventoryOptions()
	options.Contract = contract
	options.Files = reading.New(w.Settings.RootDir, func(path string, data []byte) ([]byte, error) {
		if file := w.Files.Open(path); bytes.Equal(file.Data, data) {
			return file.Decrypted()
		}

		return w.Sops().Decrypt(ctx, w.Files.Shown(path), data) //nolint:wrapcheck // it names the file
	})

	for path, data := range files {
		options.Files.Pretend(path, data)
	}

	return inventory.Load(options) //nolint:wrapcheck // it names the files
}
