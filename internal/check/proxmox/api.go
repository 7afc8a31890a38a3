package proxmox

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// API is the API of a Proxmox VE.
type API struct {
	// Endpoint is its URL, as https://pve.example.net:8006/.
	Endpoint string
	// Token is an API token, as user@realm!name=secret. It is sent to Endpoint alone, and is in no error.
	Token string
	// Insecure takes any certificate.
	Insecure bool
}

const (
	// answerLimit is more than any answer has, in bytes.
	answerLimit = 16 << 20
	askTimeout  = 20 * time.Second
)

// VMs asks for the machines that wanted says yes to, by name. Templates are left out.
func (a API) VMs(ctx context.Context, wanted func(name string) bool) ([]VM, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if a.Insecure {
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the operator asked for it
	}

	defer transport.CloseIdleConnections()

	client := &http.Client{Transport: transport, Timeout: askTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

	var guests []struct {
		ID       json.Number `json:"vmid"`
		Name     string      `json:"name"`
		Node     string      `json:"node"`
		Type     string      `json:"type"`
		Template int         `json:"template"`
	}

	if err := a.get(ctx, client, "cluster/resources?type=vm", &guests); err != nil {
		return nil, err
	}

	var machines []VM

	for _, guest := range guests {
		if guest.Type != "qemu" || guest.Template != 0 || !wanted(guest.Name) {
			continue
		}

		var config map[string]any

		if err := a.get(ctx, client, "nodes/"+url.PathEscape(guest.Node)+"/qemu/"+url.PathEscape(guest.ID.String())+"/config",
			&config); err != nil {
			return nil, err
		}

		machines = append(machines, fromConfig(guest.Name, config))
	}

	slices.SortFunc(machines, func(a, b VM) int { return cmp.Compare(a.Name, b.Name) })

	return machines, nil
}

// get asks for the data at a path below /api2/json.
func (a API) get(ctx context.Context, client *http.Client, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(a.Endpoint, "/")+"/api2/json/"+path,
		nil)
	if err != nil {
		return fmt.Errorf("ask Proxmox: %s is no URL", a.Endpoint)
	}

	request.Header.Set("Authorization", "PVEAPIToken="+a.Token)

	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask Proxmox: %w", err)
	}

	defer func() { _ = response.Body.Close() }() // it was only read

	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask Proxmox: it answers %d to %s", response.StatusCode, path)
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

	var cards []string

	for key := range config {
		if network.MatchString(key) {
			cards = append(cards, key)
		}
	}

	slices.Sort(cards)

	for _, key := range cards {
		model, _, _ := strings.Cut(fmt.Sprint(config[key]), ",")
		model = strings.TrimPrefix(model, "model=")
		model, _, _ = strings.Cut(model, "=")
		made.Networks = append(made.Networks, Setting{Value: model, Known: true})
	}

	return made
}

// first is the first part of a property string, whose key may be left out.
func first(setting Setting, key string) Setting {
	setting.Value, _, _ = strings.Cut(setting.Value, ",")
	setting.Value = strings.TrimPrefix(setting.Value, key+"=")

	return setting
}
