package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/cosi-project/runtime/pkg/safe"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	configtypes "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block/blockhelpers"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
)

// machineConfig is the one that a boot runs with, and what becomes of those that it is sent.
type machineConfig struct {
	boot *Boot

	applying sync.Mutex // held by the running ApplyConfiguration

	// What follows is guarded by boot.mu.
	current    talosconfig.Provider
	persistent talosconfig.Provider
	rollback   context.CancelFunc   // of a running try
	rebooting  bool                 // a reboot-mode apply was accepted
	received   bool                 // a machine config was accepted in maintenance mode
	withdrawn  talosconfig.Provider // a tried config that was taken back, when there was none before it
}

// persist makes a config the one that the machine will boot with. Without a STATE partition it lives only as long as
// the boot.
func (m *machineConfig) persist(provider talosconfig.Provider) {
	m.boot.mu.Lock()
	m.persistent = provider
	m.boot.mu.Unlock()

	m.boot.Resources.showConfig(config.PersistentID, provider)

	data, err := provider.Bytes()
	if err != nil {
		return // configs that were loaded encode
	}

	m.boot.Node.EditDrive(func(d *Drive) {
		if d.Installed {
			d.config = data
		}
	})
}

// activate makes a config the one that the machine runs with.
func (m *machineConfig) activate(provider talosconfig.Provider) {
	m.boot.mu.Lock()
	m.current = provider
	m.boot.mu.Unlock()

	m.boot.Node.EditDrive(func(d *Drive) {
		if d.Installed && d.identity == "" {
			d.identity = identityOf(m.boot.Node.options.UUID + m.boot.ID)
		}
	})

	m.moveAddresses(provider)
	m.boot.Resources.showConfig(config.ActiveID, provider)
	m.boot.Resources.showMachineType()
	m.boot.Resources.showNetwork()
	m.boot.Resources.showNetworkServices(provider)

	switch {
	case !provider.CompleteForBoot():
		m.boot.Certificates.renewMaintenance() // for the names and addresses that the machine may have got
	case m.Hostname() != "":
		m.boot.Resources.showNodename()
		m.boot.Resources.showIdentity()
		m.boot.Kubelet.restartForImage()
		m.boot.Kubelet.report()
	}

	m.boot.status.refresh()
	m.boot.Node.Lab.changed.Raise()
}

// forget leaves a machine in maintenance mode without the settings that it was sent there.
func (m *machineConfig) forget() {
	m.boot.mu.Lock()
	m.current = nil
	m.boot.mu.Unlock()

	m.boot.Resources.remove(config.NewMachineConfigWithID(nil, config.ActiveID))
	m.boot.Resources.showNetwork()
	m.boot.Certificates.renewMaintenance()
	m.boot.status.refresh()
}

// withdraw leaves the machine without a config in the middle of a boot that has left maintenance mode.
func (m *machineConfig) withdraw() {
	m.boot.mu.Lock()
	m.current, m.withdrawn, m.boot.Certificates.own = nil, m.current, nil
	m.boot.mu.Unlock()

	m.boot.Resources.remove(config.NewMachineConfigWithID(nil, config.ActiveID))
	m.boot.Resources.showMachineType()
	m.boot.status.refresh()
	m.boot.Node.Lab.changed.Raise()
}

// moveAddresses gives the machine the static addresses of its config, as far as the lab has them. Without any it stays
// where it is.
func (m *machineConfig) moveAddresses(provider talosconfig.Provider) {
	var targets []netip.Addr

	if elsewhere := m.boot.Node.Faults().AddressAfter; elsewhere.IsValid() && provider.CompleteForBoot() {
		targets = append(targets, elsewhere)
	} else {
		for _, prefix := range staticAddresses(provider) {
			if m.boot.Node.Lab.has(prefix.Addr()) && !slices.Contains(targets, prefix.Addr()) {
				targets = append(targets, prefix.Addr())
			}
		}
	}

	if len(targets) == 0 || slices.Equal(targets, m.boot.Addresses()) {
		return
	}

	if err := m.boot.Node.NIC.SetAddresses(targets...); err != nil {
		m.boot.Log("failed to assign addresses %s: %s", targets, err)
	}
}

// showNames shows the names that the machine got from its disk.
func (m *machineConfig) showNames() {
	m.boot.Resources.showNetwork()

	if m.Active() != nil && m.Hostname() != "" {
		m.boot.Resources.showNodename()
		m.boot.Resources.showIdentity()
	}
}

// has reports whether a machine of the lab can have the address.
func (l *Lab) has(address netip.Addr) bool {
	return l.prefix.Contains(address) || l.network.Leads(address)
}

// staticAddresses are the addresses that a machine config gives, in both styles of network settings.
func staticAddresses(provider talosconfig.Provider) []netip.Prefix {
	var prefixes []netip.Prefix

	for _, link := range provider.NetworkCommonLinkConfigs() {
		for _, address := range link.Addresses() {
			prefixes = append(prefixes, address.Address())
		}
	}

	if !provider.CompleteForBoot() {
		return prefixes
	}

	for _, device := range provider.Machine().Network().Devices() {
		for _, text := range device.Addresses() {
			if prefix, err := netip.ParsePrefix(text); err == nil {
				prefixes = append(prefixes, prefix)
			} else if address, err := netip.ParseAddr(text); err == nil {
				prefixes = append(prefixes, netip.PrefixFrom(address, address.BitLen()))
			}
		}
	}

	return prefixes
}

// Hostname is the machine's name: static, or made from the node id, which only an installed machine has. Empty while it
// has none.
func (m *machineConfig) Hostname() string {
	m.boot.mu.Lock()
	provider := m.current
	m.boot.mu.Unlock()

	if provider == nil {
		return ""
	}

	settings := provider.NetworkHostnameConfig()
	if settings == nil {
		return ""
	}

	if name := settings.Hostname(); name != "" {
		return name
	}

	identity := m.boot.Node.ReadDrive().identity

	if settings.AutoHostname() != nethelpers.AutoHostnameKindStable || identity == "" {
		return ""
	}

	digest := sha256.Sum256([]byte(identity))
	hexed := hex.EncodeToString(digest[:])

	return "talos-" + hexed[:3] + "-" + hexed[3:6]
}

// installDisk finds the disk that the machine config names or selects; the first match counts.
func (m *machineConfig) installDisk(ctx context.Context, install configtypes.Install) (string, error) {
	expression, err := install.DiskMatchExpression()
	if err != nil {
		return "", fmt.Errorf("install disk selector is invalid: %w", err)
	}

	switch {
	case expression == nil && install.Disk() == "":
		return "", nil // since Talos 1.14 it is the installer that complains
	case expression == nil:
		return m.DiskByPath(ctx, install.Disk())
	}

	matched, err := blockhelpers.MatchDisks(ctx, m.boot.Resources.Own, expression)
	if err != nil {
		return "", fmt.Errorf("match disks: %w", err)
	}

	if len(matched) == 0 {
		return "", errors.New("no disk found matching provided parameters")
	}

	return matched[0].Metadata().ID(), nil
}

// DiskByPath finds a disk by its device or by a link to it.
func (m *machineConfig) DiskByPath(ctx context.Context, path string) (string, error) {
	disks, err := safe.StateListAll[*block.Disk](ctx, m.boot.Resources.Own)
	if err != nil {
		return "", fmt.Errorf("list disks: %w", err)
	}

	for disk := range disks.All() {
		if disk.TypedSpec().DevPath == path || slices.Contains(disk.TypedSpec().Symlinks, path) {
			return disk.Metadata().ID(), nil
		}
	}

	return "", fmt.Errorf("lstat %s: no such file or directory", path)
}
