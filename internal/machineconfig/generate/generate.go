// Package generate makes the machine configs and the talosconfig of a cluster from its talconfig.yaml or its profile,
// in memory and without the network. The same source gives the same bytes.
//
// What each key does, and the order in which patches are applied, is talhelper's (v3.1.16); docs/talconfig.md lists
// where this differs.
package generate

import (
	"errors"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
)

// Source is what machine configs are made from.
type Source struct {
	// Cluster is what was read of the talconfig.yaml or the profile.
	Cluster *inventory.Cluster
	// Secrets of the cluster.
	Secrets *secrets.Bundle
	// Now is what the talosconfig's client certificate is valid from.
	Now time.Time
}

// Output is everything that a folder clusterconfig/ holds.
type Output struct {
	// Cluster is its name.
	Cluster string
	// Configs are in the order of the file.
	Configs []Config
	// Talosconfig has the control planes as endpoints and all machines as nodes.
	Talosconfig []byte
	// GitIgnore keeps all of these out of a repository.
	GitIgnore []byte
}

// Config is the machine config of one entry; several machines may share it.
type Config struct {
	// Node is the entry's hostname.
	Node string
	// File is the name inside the folder, as lab-cp1.yaml.
	File  string
	Bytes []byte
}

// checkSecrets finds parts that are missing from the bundle, which machinery takes for granted. That both keys of
// encryption at rest are there is right for an old cluster, though machinery's own validation refuses it.
func (s Source) checkSecrets() error {
	bundle := s.Secrets

	switch {
	case bundle == nil:
		return errors.New("generate machine configs: the cluster's secrets are needed")
	case bundle.Cluster == nil, bundle.Secrets == nil, bundle.TrustdInfo == nil, bundle.Certs == nil:
		return errors.New("generate machine configs: the cluster's secrets need cluster, secrets, trustdinfo and certs")
	}

	certs := bundle.Certs
	if certs.OS == nil || certs.K8s == nil || certs.K8sAggregator == nil || certs.K8sServiceAccount == nil ||
		certs.Etcd == nil {
		return errors.New("generate machine configs: the cluster's certs need os, k8s, k8saggregator, k8sserviceaccount " +
			"and etcd")
	}

	return nil
}

// Configs makes everything that a cluster's files describe. An error lists every mistake in the files that keeps
// machine configs from being made, see yamlfile.Errors.
func Configs(source Source) (*Output, error) {
	switch err := source.checkSecrets(); {
	case err != nil:
		return nil, err
	case source.Cluster.Profile != nil:
		return profileConfigs(source)
	default:
		return talconfigConfigs(source)
	}
}

func talconfigConfigs(source Source) (*Output, error) {
	cluster, err := load(source)
	if err != nil {
		return nil, err
	}

	output := &Output{Cluster: cluster.config.ClusterName}

	for _, entry := range cluster.entries {
		data, err := entry.generate()
		if err != nil {
			return nil, err
		}

		output.Configs = append(output.Configs, Config{Node: entry.Hostname, File: entry.file, Bytes: data})
	}

	if err := cluster.err(); err != nil {
		return nil, err
	}

	output.GitIgnore = gitIgnore(output.Configs)
	output.Talosconfig, err = cluster.talosconfig()

	return output, err
}

// gitIgnore names each file once.
func gitIgnore(configs []Config) []byte {
	var text []byte

	for _, config := range configs {
		text = append(text, config.File+"\n"...)
	}

	return append(text, "talosconfig\n"...)
}
