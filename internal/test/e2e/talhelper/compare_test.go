package talhelper_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"go.yaml.in/yaml/v4"
)

// difference is one place where two folders of machine configs do not mean the same.
type difference struct {
	file string
	// document is its kind and name, as "LinkConfig/eth0"; "v1alpha1" for the one that has neither.
	document string
	// path is of the value inside the document; empty if one side has no such document.
	path string
	// talhelpers and ours are the values, nil where there is none.
	talhelpers, ours any
}

func (d difference) String() string {
	return fmt.Sprintf("%s: %s: %s: talhelper %s, here %s", d.file, d.document, d.path, show(d.talhelpers), show(d.ours))
}

func show(value any) string {
	if value == nil {
		return "nothing"
	}

	text := fmt.Sprintf("%#v", value)
	if len(text) > 300 {
		text = text[:300] + "..."
	}

	return text
}

// compare tells where the files of talhelper's folder and ours differ in what they mean.
func compare(talhelpers, ours map[string][]byte) []difference {
	var found []difference

	names := maps.Clone(talhelpers)
	maps.Copy(names, ours)

	for _, name := range slices.Sorted(maps.Keys(names)) {
		theirs, inTheirs := talhelpers[name]
		own, inOurs := ours[name]

		switch {
		case !inTheirs || !inOurs:
			found = append(found, difference{file: name, talhelpers: presence(inTheirs), ours: presence(inOurs)})
		case name == ".gitignore":
			if string(theirs) != string(own) {
				found = append(found, difference{file: name, talhelpers: string(theirs), ours: string(own)})
			}
		case name == "talosconfig":
			found = append(found, compareValues(difference{file: name}, clientSettings(theirs), clientSettings(own))...)
		default:
			found = append(found, compareConfigs(name, theirs, own)...)
		}
	}

	return found
}

func presence(is bool) any {
	if is {
		return "a file"
	}

	return nil
}

// compareConfigs takes documents by kind and name, since their order means nothing, and reads them as a node does.
func compareConfigs(file string, talhelpers, ours []byte) []difference {
	// Most are the same text but for the quotes that a release of the library takes, and reading them costs more than all
	// else here.
	if bytes.Equal(bytes.ReplaceAll(talhelpers, []byte("'off'"), []byte(`"off"`)), ours) {
		return nil
	}

	theirs, theirErr := documents(talhelpers)
	own, ourErr := documents(ours)

	if theirErr != nil || ourErr != nil {
		return []difference{{file: file, talhelpers: errorText(theirErr), ours: errorText(ourErr)}}
	}

	var found []difference

	names := maps.Clone(theirs)
	maps.Copy(names, own)

	for _, name := range slices.Sorted(maps.Keys(names)) {
		found = append(found, compareValues(difference{file: file, document: name}, theirs[name], own[name])...)
	}

	return found
}

func errorText(err error) any {
	if err == nil {
		return nil
	}

	return "unreadable: " + err.Error()
}

// documents are a machine config's documents by kind and name, each as Talos parsed it.
func documents(text []byte) (map[string]any, error) {
	provider, err := configloader.NewFromBytes(text)
	if err != nil {
		return nil, fmt.Errorf("load machine config: %w", err)
	}

	found := map[string]any{}

	for _, document := range provider.Documents() {
		name := document.Kind()
		if named, ok := document.(config.NamedDocument); ok {
			name += "/" + named.Name()
		}

		encoded, err := encoder.NewEncoder(document, encoder.WithComments(encoder.CommentsDisabled)).Encode()
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", name, err)
		}

		var value any
		if err := yaml.Unmarshal(encoded, &value); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}

		if _, twice := found[name]; twice {
			return nil, fmt.Errorf("there are two documents %s", name)
		}

		found[name] = value
	}

	return found, nil
}

// compareValues goes down both values as far as both have the same fields. A list is compared item by item: the order
// matters.
func compareValues(at difference, talhelpers, ours any) []difference {
	theirs, own := withoutEmpty(talhelpers), withoutEmpty(ours)

	theirFields, mapping := theirs.(map[string]any)
	ourFields, both := own.(map[string]any)

	if mapping && both {
		var found []difference

		keys := maps.Clone(theirFields)
		maps.Copy(keys, ourFields)

		for _, key := range slices.Sorted(maps.Keys(keys)) {
			child := at
			child.path = strings.TrimPrefix(at.path+"."+key, ".")
			found = append(found, compareValues(child, theirFields[key], ourFields[key])...)
		}

		return found
	}

	theirItems, list := theirs.([]any)
	ourItems, both := own.([]any)

	if list && both && len(theirItems) == len(ourItems) {
		var found []difference

		for i := range theirItems {
			child := at
			child.path = fmt.Sprintf("%s[%d]", at.path, i)
			found = append(found, compareValues(child, theirItems[i], ourItems[i])...)
		}

		return found
	}

	// Where an expression is wrapped is up to the release of the library that writes it.
	if strings.HasSuffix(at.path, ".match") {
		theirs, own = unwrapped(theirs), unwrapped(own)
	}

	if reflect.DeepEqual(theirs, own) {
		return nil
	}

	at.talhelpers, at.ours = theirs, own

	return []difference{at}
}

func unwrapped(expression any) any {
	text, is := expression.(string)
	if !is {
		return expression
	}

	return strings.Join(strings.Fields(text), " ")
}

// withoutEmpty takes an empty list or mapping for nothing, as Talos does.
func withoutEmpty(value any) any {
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 {
			return nil
		}
	case []any:
		if len(value) == 0 {
			return nil
		}
	}

	return value
}

// clientSettings is what a talosconfig says. Of the client's certificate, which is another one each time, it is what it
// allows and for how long.
func clientSettings(text []byte) any {
	read, err := clientconfig.FromBytes(text)
	if err != nil {
		return errorText(err)
	}

	contexts := map[string]any{}

	for name, context := range read.Contexts {
		contexts[name] = map[string]any{
			"endpoints": fmt.Sprint(context.Endpoints), "nodes": fmt.Sprint(context.Nodes), "ca": context.CA,
			"certificate": certificate(context),
		}
	}

	return map[string]any{"context": read.Context, "contexts": contexts}
}

func certificate(context *clientconfig.Context) any {
	text, err := decode(context.Crt)
	if err != nil {
		return errorText(err)
	}

	block, _ := pem.Decode(text)
	if block == nil {
		return "no PEM"
	}

	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return errorText(err)
	}

	return map[string]any{
		"subject": parsed.Subject.String(), "issuer": parsed.Issuer.String(),
		"for":   parsed.NotAfter.Sub(parsed.NotBefore).String(),
		"usage": fmt.Sprint(parsed.KeyUsage, parsed.ExtKeyUsage), "key": parsed.PublicKeyAlgorithm.String(),
	}
}
