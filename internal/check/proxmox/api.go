package proxmox

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/host"
	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// API is the API of one host of a Proxmox VE, which tells of all hosts of its cluster.
type API struct {
	// Endpoint is its URL, as https://pve.example.net:8006/.
	Endpoint string
	// Token is an API token, as user@realm!name=secret. It is sent to Endpoint alone, and is in no error.
	Token string
	// Insecure takes any certificate.
	Insecure bool
}

// APIs are those of several hosts, with one token for all of them or one for each, in their order.
func APIs(endpoints, tokens []string, insecure bool) ([]API, error) {
	if len(tokens) == 0 {
		return nil, errors.New("PROXMOX_VE_ENDPOINT is set, and PROXMOX_VE_API_TOKEN is not")
	}

	apis := make([]API, 0, len(endpoints))

	for i, endpoint := range endpoints {
		apis = append(apis, API{Endpoint: endpoint, Token: tokens[min(i, len(tokens)-1)], Insecure: insecure})
	}

	return apis, nil
}

const (
	// answerLimit is more than any answer has, in bytes.
	answerLimit = 16 << 20
	askTimeout  = 20 * time.Second
)

// VMs asks several hosts for the machines that wanted says yes to, by name. What several hosts of one cluster tell is
// listed once. With an UnreadError come those that could be read.
func VMs(ctx context.Context, apis []API, wanted func(name string) bool) ([]VM, error) {
	var (
		machines []VM
		failed   []error
	)

	for _, api := range apis {
		found, err := api.vms(ctx, wanted)
		failed = append(failed, err)

		for _, vm := range found {
			if !slices.ContainsFunc(machines, func(other VM) bool { return reflect.DeepEqual(vm, other) }) {
				machines = append(machines, vm)
			}
		}
	}

	slices.SortStableFunc(machines, func(a, b VM) int { return cmp.Compare(a.Name, b.Name) })

	if err := errors.Join(failed...); err != nil {
		return machines, UnreadError{err}
	}

	return machines, nil
}

// guest is an entry of the list of a cluster's machines.
type guest struct {
	ID       json.Number `json:"vmid"`
	Name     string      `json:"name"`
	Node     string      `json:"node"`
	Type     string      `json:"type"`
	Template int         `json:"template"`
}

// vms asks one host. Templates are left out. A machine that can't be read is in the error, and the others are given.
func (a API) vms(ctx context.Context, wanted func(name string) bool) ([]VM, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if a.Insecure {
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the operator asked for it
	}

	defer transport.CloseIdleConnections()

	client := &http.Client{Transport: transport, Timeout: askTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

	var guests []guest
	if err := a.get(ctx, client, "cluster/resources?type=vm", &guests); err != nil {
		return nil, err
	}

	var (
		machines []VM
		failed   []error
	)

	for _, guest := range guests {
		if guest.Type != "qemu" || guest.Template != 0 || !wanted(guest.Name) {
			continue
		}

		var config map[string]any

		err := a.get(ctx, client,
			"nodes/"+url.PathEscape(guest.Node)+"/qemu/"+url.PathEscape(guest.ID.String())+"/config", &config)
		if err != nil {
			failed = append(failed, fmt.Errorf("VM %s: %w", guest.Name, err))

			continue
		}

		machine := fromConfig(guest.Name, config)
		machine.Where = guest.ID.String() + " on " + guest.Node
		machines = append(machines, machine)
	}

	return machines, errors.Join(failed...)
}

// get asks for the data at a path below /api2/json.
func (a API) get(ctx context.Context, client *http.Client, path string, into any) error {
	base := strings.TrimSuffix(strings.TrimSuffix(a.Endpoint, "/"), "/api2/json")

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api2/json/"+path, nil)
	if err != nil {
		return errors.New("ask Proxmox: the endpoint is no URL") // it may have a password
	}

	request.Header.Set("Authorization", "PVEAPIToken="+a.Token)

	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask Proxmox: %w", err)
	}

	defer func() { _ = response.Body.Close() }() // it was only read

	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask Proxmox: %s answers %d to %s%s", request.URL.Host, response.StatusCode, path,
			meaning(response.StatusCode))
	}

	answer := struct {
		Data any `json:"data"`
	}{into}

	decoder := json.NewDecoder(io.LimitReader(response.Body, answerLimit))
	decoder.UseNumber()

	if err := decoder.Decode(&answer); err != nil {
		return fmt.Errorf("read Proxmox' answer to %s: %w", path, err)
	}

	return nil
}

// Proxmox' own codes for a host of its cluster that it can't ask in turn.
const (
	statusNoConnection     = 595
	statusBrokenConnection = 596
)

// meaning says what a refusal comes from; empty if that is not known.
func meaning(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return ": it does not know the token, or the token has expired"
	case http.StatusForbidden:
		return ": the token lacks the role PVEAuditor; with privileges separate from its user's it needs it itself"
	case http.StatusInternalServerError:
		return ": it failed by itself, as its own log says"
	case statusNoConnection, statusBrokenConnection:
		return ": it can't reach the host that has the VM"
	default:
		return ""
	}
}

var network = pattern.New(`^net\d+$`)

// fromConfig is a machine as its configuration has it.
func fromConfig(name string, config map[string]any) VM {
	get := func(key, byDefault string) Setting {
		value, set := config[key]
		if !set || value == nil {
			return Setting{Value: byDefault, Known: true}
		}

		return Setting{Value: fmt.Sprint(value), Known: true}
	}

	made := VM{
		Name: name, BIOS: get("bios", "seabios"), Machine: get("machine", "pc"), CPU: first(get("cpu", "kvm64"), "cputype"),
		CPUArguments: config["args"] != nil,
		Cores:        times(get("cores", "1"), get("sockets", "1")), Memory: first(get("memory", "512"), "current"),
		SCSI:  get("scsihw", "lsi"),
		Agent: enabled(first(get("agent", "0"), "enabled")), Hotplug: get("hotplug", usualHotplug),
	}

	made.Machine = first(made.Machine, "type")
	made.Balloon = get("balloon", made.Memory.Value) // without a word Proxmox gives the machine a balloon

	if disk, set := config["efidisk0"]; set {
		made.PreEnrolledKeys = Setting{Value: fmt.Sprint(strings.Contains(fmt.Sprint(disk), "pre-enrolled-keys=1")),
			Known: true}
	}

	for _, key := range cards(config) {
		text := fmt.Sprint(config[key])
		model, _, _ := strings.Cut(text, ",")
		model = strings.TrimPrefix(model, "model=")
		model, _, _ = strings.Cut(model, "=")
		made.Networks = append(made.Networks, Setting{Value: model, Known: true})

		if mac := cardMAC(text); mac != "" {
			made.MACs = append(made.MACs, mac)
		}
	}

	if value, set := config["smbios1"]; set {
		made.UUID = strings.ToLower(properties(fmt.Sprint(value))["uuid"])
	}

	return made
}

// cards are the keys of a machine's network cards, by number.
func cards(config map[string]any) []string {
	var keys []string

	for key := range config {
		if network.MatchString(key) {
			keys = append(keys, key)
		}
	}

	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })

	return keys
}

// cardMAC is the address of a network card, which stands with its model or in a property of its own:
// "virtio=02:00:5E:10:00:01,bridge=vmbr0" or "model=virtio,macaddr=02:00:5E:10:00:01".
func cardMAC(text string) string {
	given := properties(text)
	if mac := host.MAC(given["macaddr"]); mac != "" {
		return mac
	}

	first, _, _ := strings.Cut(text, ",")
	_, value, _ := strings.Cut(first, "=")

	return host.MAC(value)
}

// properties are the parts of a property string that have keys.
func properties(text string) map[string]string {
	given := map[string]string{}

	for part := range strings.SplitSeq(text, ",") {
		if key, value, has := strings.Cut(part, "="); has {
			given[key] = value
		}
	}

	return given
}

// first is the first part of a property string, whose key may be left out.
func first(setting Setting, key string) Setting {
	setting.Value, _, _ = strings.Cut(setting.Value, ",")
	setting.Value = strings.TrimPrefix(setting.Value, key+"=")

	return setting
}
