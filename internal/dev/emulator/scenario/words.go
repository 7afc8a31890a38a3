package scenario

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// words are what an enumeration's values are called in a scenario, by value.
var words = map[reflect.Type][]string{
	reflect.TypeFor[labcluster.EndpointKind](): {labcluster.VIP: "vip", labcluster.FirstControlPlane: "firstControlPlane"},
	reflect.TypeFor[Action](): {Set: "set", Heal: "heal", PowerOff: "powerOff", PowerOn: "powerOn",
		Cordon: "cordon", Uncordon: "uncordon"},
	reflect.TypeFor[kubernetes.Kind](): {kubernetes.Deployment: "deployment", kubernetes.StatefulSet: "statefulSet",
		kubernetes.DaemonSet: "daemonSet", kubernetes.Job: "job", kubernetes.Bare: "pod"},
	reflect.TypeFor[emulator.EtcdData](): {emulator.NoEtcdData: "none", emulator.LostEtcdData: "lost",
		emulator.WholeEtcdData: "whole"},
	reflect.TypeFor[emulator.Loss](): {emulator.NotLost: "none", emulator.LostLink: "link",
		emulator.LostDisk: "disk"},
	reflect.TypeFor[emulator.When](): {emulator.BeforeEffect: "before", emulator.AfterEffect: "after"},
	reflect.TypeFor[emulator.Mishap](): {emulator.Cut: "cut", emulator.Hang: "hang", emulator.Fail: "fail",
		emulator.Freeze: "freeze"},
	reflect.TypeFor[emulator.BootstrapFault](): {
		emulator.BootstrapWorks: "none", emulator.BootstrapTypeUnset: "typeUnset", emulator.BootstrapEtcdStuck: "etcdStuck",
		emulator.BootstrapEtcdStartFails: "etcdStartFails",
	},
	reflect.TypeFor[emulator.ResetFault](): {emulator.ResetWorks: "none", emulator.ResetWipeFails: "wipeFails",
		emulator.ResetPowersOff: "powersOff"},
	reflect.TypeFor[emulator.InstallFault](): {
		emulator.InstallWorks: "none", emulator.InstallDiskMissing: "diskMissing", emulator.InstallImagePull: "imagePull",
		emulator.InstallDiskWrite: "diskWrite", emulator.InstallImageSlow: "imageSlow",
		emulator.InstallImageStalls: "imageStalls",
	},
	reflect.TypeFor[emulator.Impostor](): {
		emulator.NoImpostor: "none", emulator.HTTPSImpostor: "https", emulator.SSHImpostor: "ssh",
		emulator.PlainHTTPImpostor: "http",
		emulator.MuteImpostor:      "mute", emulator.HangUpImpostor: "hangUp",
	},
	reflect.TypeFor[codes.Code](): codeNames(),
}

// codeNames are gRPC's own, as in "FailedPrecondition".
func codeNames() []string {
	var names []string
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		names = append(names, code.String())
	}

	return names
}

// Words are what a field of this type takes; nil if it is no enumeration.
func Words(of reflect.Type) []string { return words[of] }

// wordReader reads the words of an enumeration.
func wordReader(names []string) reader {
	return func(text string, value reflect.Value) (string, error) {
		index := slices.Index(names, text)
		if index < 0 {
			return suggest.Word(text, names), fmt.Errorf("takes %s", strings.Join(names, ", "))
		}

		value.Set(reflect.ValueOf(index).Convert(value.Type()))

		return "", nil
	}
}
