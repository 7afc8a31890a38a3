package equal

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// arguments are what accessors are asked with that take a name: all that Talos asks them with.
var arguments = map[string][]string{
	"SystemDiskEncryption.Get": {constants.StatePartitionLabel, constants.EphemeralPartitionLabel},
	"VolumesConfig.ByName": {constants.StatePartitionLabel, constants.EphemeralPartitionLabel,
		constants.MetaPartitionLabel, constants.ImageCachePartitionLabel, constants.EtcdDataVolumeID,
		constants.CRIContainerdVolumeID,
		constants.KubeletDataVolumeID, constants.LogVolumeID},
}

// narrower are the interfaces that Talos finds behind a wider one, as a bond behind a link.
var narrower = []reflect.Type{
	reflect.TypeFor[config.NetworkPhysicalLinkConfig](), reflect.TypeFor[config.NetworkDummyLinkConfig](),
	reflect.TypeFor[config.NetworkVethConfig](), reflect.TypeFor[config.NetworkVLANConfig](),
	reflect.TypeFor[config.NetworkBondConfig](), reflect.TypeFor[config.NetworkBridgeConfig](),
	reflect.TypeFor[config.NetworkVRFConfig](), reflect.TypeFor[config.NetworkWireguardConfig](),
	reflect.TypeFor[config.NetworkLayer2VIPConfig](), reflect.TypeFor[config.NetworkHCloudVIPConfig](),
	reflect.TypeFor[config.NetworkDHCPv4Config](), reflect.TypeFor[config.NetworkDHCPv6Config](),
	reflect.TypeFor[config.NetworkTCPProbeConfig](), reflect.TypeFor[config.NetworkHTTPProbeConfig](),
}

// answers are what the accessors of an interface say, by their names: texts, lists, further answers, or nil. What is
// empty is nil: Talos goes through lists and mappings, and does not ask whether they are there.
type answers = map[string]any

// ask calls every accessor of an interface, of those that stand behind it, and of what they give.
func ask(value reflect.Value) answers {
	said := answers{}

	for _, asked := range behind(value.Type(), value.Elem().Type()) {
		as := reflect.New(asked).Elem()
		as.Set(value.Elem())

		for i := range asked.NumMethod() {
			if method := asked.Method(i); method.Type.NumOut() > 0 { // else it only marks a kind
				said[method.Name] = call(as.Method(i), arguments[asked.Name()+"."+method.Name])
			}
		}
	}

	return said
}

// behind are an interface and the narrower ones that a type has too.
func behind(asked, dynamic reflect.Type) []reflect.Type {
	found := []reflect.Type{asked}

	for _, narrow := range narrower {
		if narrow != asked && narrow.Implements(asked) && dynamic.Implements(narrow) {
			found = append(found, narrow)
		}
	}

	return found
}

// call asks an accessor, once with each of the names.
func call(method reflect.Value, names []string) any {
	if len(names) == 0 {
		return results(method, nil)
	}

	said := answers{}
	for _, name := range names {
		said[name] = results(method, []reflect.Value{reflect.ValueOf(name)})
	}

	return said
}

// results are what one call gives: a value, maybe with an error or with whether it is there. A broken config can make
// an accessor panic, which is an answer too.
func results(method reflect.Value, with []reflect.Value) (said any) {
	defer func() {
		if recovered := recover(); recovered != nil {
			said = "(can't be read)"
		}
	}()

	got := method.Call(with)
	said = view(got[0])

	if len(got) == 1 {
		return said
	}

	switch second := got[1].Interface().(type) {
	case nil:
		return said
	case error:
		return "(error: " + second.Error() + ")"
	default:
		return answers{"value": said, "present": view(got[1])}
	}
}

// view is a value without its Go types.
func view(value reflect.Value) any {
	if text, ok := textOf(value); ok {
		return text
	}

	switch value.Kind() {
	case reflect.Interface:
		return viewInterface(value)
	case reflect.Pointer:
		if value.IsNil() {
			return nil
		}

		return view(value.Elem())
	case reflect.Map:
		return viewMap(value)
	case reflect.Slice, reflect.Array:
		return viewList(value)
	case reflect.Struct:
		return viewStruct(value)
	default:
		return fmt.Sprint(value.Interface())
	}
}

func viewInterface(value reflect.Value) any {
	switch {
	case value.IsNil():
		return nil
	case value.NumMethod() == 0:
		return view(value.Elem())
	default:
		return ask(value)
	}
}

func viewMap(value reflect.Value) any {
	if value.Len() == 0 {
		return nil
	}

	said := answers{}
	for key, item := range value.Seq2() {
		said[fmt.Sprint(view(key))] = view(item)
	}

	return said
}

func viewList(value reflect.Value) any {
	if value.Len() == 0 {
		return nil
	}

	if value.Type().Elem().Kind() == reflect.Uint8 {
		return string(value.Bytes())
	}

	list := make([]any, value.Len())
	for i := range list {
		list[i] = view(value.Index(i))
	}

	return list
}

func viewStruct(value reflect.Value) any {
	if isOptional(value.Type()) {
		if !value.MethodByName("IsPresent").Call(nil)[0].Bool() {
			return nil
		}

		return view(value.MethodByName("ValueOrZero").Call(nil)[0])
	}

	said := answers{}
	for i := range value.NumField() {
		said[value.Type().Field(i).Name] = view(value.Field(i))
	}

	return said
}

func isOptional(in reflect.Type) bool { return strings.HasSuffix(in.PkgPath(), "/gen/optional") }

// textOf is the text of a type that writes itself, as an address or a duration.
func textOf(value reflect.Value) (string, bool) {
	if !writesItself(value.Type()) {
		return "", false
	}

	pointer := reflect.New(value.Type())
	pointer.Elem().Set(value)

	switch written := pointer.Interface().(type) {
	case fmt.Stringer:
		return written.String(), true
	case encoding.TextMarshaler:
		text, err := written.MarshalText()

		return string(text), err == nil
	default:
		return "", false
	}
}

func writesItself(in reflect.Type) bool {
	pointer := reflect.PointerTo(in)

	return in.Kind() != reflect.Interface && in.Kind() != reflect.Pointer &&
		(pointer.Implements(reflect.TypeFor[fmt.Stringer]()) || pointer.Implements(reflect.TypeFor[encoding.TextMarshaler]()))
}

// Accessors are the names of all accessors that are asked, by their interfaces. An error names one that can't be
// compared: it takes an argument that is not known, or gives what can't be looked into.
func Accessors() (map[string][]string, error) { return accessors() }

var accessors = sync.OnceValues(func() (map[string][]string, error) {
	found := finder{accessors: map[string][]string{}, seen: map[reflect.Type]bool{}}
	found.visit("config", reflect.TypeFor[config.Config]())

	for _, narrow := range narrower {
		found.visit("config", narrow)
	}

	return found.accessors, errors.Join(found.problems...)
})

// finder goes through the types that accessors give.
type finder struct {
	accessors map[string][]string
	seen      map[reflect.Type]bool
	problems  []error
}

func (f *finder) visit(from string, in reflect.Type) {
	if f.seen[in] || writesItself(in) {
		return
	}

	f.seen[in] = true

	switch in.Kind() {
	case reflect.Interface:
		f.visitInterface(in)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		f.visit(from, in.Elem())
	case reflect.Map:
		f.visit(from, in.Key())
		f.visit(from, in.Elem())
	case reflect.Struct:
		f.visitStruct(from, in)
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		f.problems = append(f.problems, fmt.Errorf("compare what %s gives: it is a %s", from, in))
	default:
	}
}

func (f *finder) visitInterface(in reflect.Type) {
	for method := range in.Methods() {
		name := in.Name() + "." + method.Name
		takes, gives := method.Type.NumIn(), method.Type.NumOut()

		switch {
		case gives == 0:
			continue
		case takes != min(len(arguments[name]), 1), gives > 2:
			f.problems = append(f.problems, errors.New("compare what "+name+" gives: it takes "+strconv.Itoa(takes)+
				" and gives "+strconv.Itoa(gives)+" values"))
		default:
			f.accessors[in.Name()] = append(f.accessors[in.Name()], method.Name)
			f.visit(name, method.Type.Out(0))
		}
	}
}

func (f *finder) visitStruct(from string, in reflect.Type) {
	if isOptional(in) {
		method, _ := in.MethodByName("ValueOrZero")
		f.visit(from, method.Type.Out(0))

		return
	}

	for field := range in.Fields() {
		if !field.IsExported() {
			f.problems = append(f.problems, fmt.Errorf("compare what %s gives: %s hides its %s", from, in, field.Name))

			return
		}

		f.visit(from, field.Type)
	}
}
