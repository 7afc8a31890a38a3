package discover

import (
	"context"
	"crypto/x509"
	"errors"
	"net/netip"

	"github.com/talos-mage/talos-mage/internal/talos"
)

// read finds out what answers at an address, and what it tells.
func read(ctx context.Context, dialer *talos.Dialer, address netip.Addr) Machine {
	probed := dialer.Probe(ctx, address.String())
	machine := Machine{Addresses: []netip.Addr{address}, State: probed.State, Fingerprint: probed.Fingerprint}

	if probed.Configured() {
		machine.takeCertificate(probed.Leaf)
	}

	conn, err := dialer.Open(ctx, probed)
	if machine.Err = err; conn != nil {
		defer conn.Close()

		machine.Err = machine.take(ctx, conn)
	}

	return machine
}

// takeCertificate takes up what a node's certificate says, which is signed by its cluster.
func (m *Machine) takeCertificate(leaf *x509.Certificate) {
	m.CertificateNames = append(m.CertificateNames, leaf.DNSNames...)
	if len(leaf.DNSNames) > 0 {
		m.Hostname = leaf.DNSNames[0]
	}

	for _, address := range leaf.IPAddresses {
		m.CertificateNames = append(m.CertificateNames, address.String())
	}
}

// take reads what the machine tells, until something goes wrong with the connection.
func (m *Machine) take(ctx context.Context, conn *talos.Conn) error {
	for _, ask := range []func(context.Context, *talos.Conn) error{
		m.askSystem, m.askLinks, m.askVersion, m.askHostname, m.askDisks, m.askSecurity,
	} {
		// Some releases do not have it, or do not tell it to everybody.
		if err := ask(ctx, conn); err != nil && !errors.Is(err, talos.ErrNotFound) && !errors.Is(err, talos.ErrNotAllowed) {
			return err
		}
	}

	return nil
}

func (m *Machine) askSystem(ctx context.Context, conn *talos.Conn) error {
	system, err := conn.SystemInformation(ctx)
	m.UUID, m.Serial = system.UUID, system.Serial
	return err
}

func (m *Machine) askLinks(ctx context.Context, conn *talos.Conn) (err error) {
	m.Links, err = conn.Links(ctx)

	for _, link := range m.Links {
		if link.Physical && link.MAC != "" {
			m.MACs = append(m.MACs, link.MAC)
		}
	}

	return err
}

func (m *Machine) askVersion(ctx context.Context, conn *talos.Conn) (err error) {
	m.Version, err = conn.Version(ctx)
	return err
}

func (m *Machine) askHostname(ctx context.Context, conn *talos.Conn) error {
	hostname, err := conn.Hostname(ctx)
	if hostname != "" {
		m.Hostname = hostname
	}

	return err
}

func (m *Machine) askDisks(ctx context.Context, conn *talos.Conn) (err error) {
	m.Disks, err = conn.Disks(ctx)
	return err
}

func (m *Machine) askSecurity(ctx context.Context, conn *talos.Conn) error {
	security, err := conn.SecurityState(ctx)
	m.SecureBoot, m.UKI = security.SecureBoot, security.UKI
	return err
}
