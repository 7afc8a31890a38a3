package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
)

// who may have a fault.
type who int

const (
	anyMachine who = iota
	controlPlanes
)

// fault is a kind of trouble that a knob of the emulator, or its power, makes.
type fault struct {
	name string
	whom who
	// only says that the fault begins at one of these; at any moment when empty.
	only []Anchor
	draw func(random *rand.Rand, plan *Plan, node string) knob
}

// knob is a drawn fault: how it is turned on and off again.
type knob struct {
	words string
	class Class
	on    func(*emulator.Faults)
	off   func(*emulator.Faults)
	// power is set for a fault that takes the machine's power away, in the place of on and off.
	power bool
	// forgets is set for a fault that makes the machine lose its disk at its next boot.
	forgets bool
}

// faults are the kinds of trouble of single machines. Together they turn every knob of emulator.Faults.
var faults = []fault{
	{name: "power cut", draw: func(*rand.Rand, *Plan, string) knob {
		return knob{words: "has no power", class: poweredOff, power: true}
	}},
	{name: "silence", draw: func(*rand.Rand, *Plan, string) knob {
		return knob{
			words: "is off the network", class: silent,
			on: func(f *emulator.Faults) { f.Silence = true }, off: func(f *emulator.Faults) { f.Silence = false },
		}
	}},
	{name: "refused", draw: func(*rand.Rand, *Plan, string) knob {
		return knob{
			words: "refuses connections", class: refused,
			on: func(f *emulator.Faults) { f.Refuse = true }, off: func(f *emulator.Faults) { f.Refuse = false },
		}
	}},
	{name: "stall", draw: func(random *rand.Rand, _ *Plan, _ string) knob {
		limit := int64(4096 << random.IntN(3))

		return knob{
			words: fmt.Sprintf("has connections that die after %d bytes", limit), class: stalled,
			on: func(f *emulator.Faults) { f.StallAfter = limit }, off: func(f *emulator.Faults) { f.StallAfter = 0 },
		}
	}},
	{name: "impostor", draw: drawImpostor},
	{name: "reset on refusal", draw: func(*rand.Rand, *Plan, string) knob {
		return knob{
			words: "resets the connections of those that it refuses", class: harmless,
			on: func(f *emulator.Faults) { f.ResetRefused = true }, off: func(f *emulator.Faults) { f.ResetRefused = false },
		}
	}},
	{name: "new certificates", draw: func(*rand.Rand, *Plan, string) knob {
		return knob{
			words: "shows another certificate on every connection while it is in maintenance", class: harmless,
			on:  func(f *emulator.Faults) { f.NewCertificates = true },
			off: func(f *emulator.Faults) { f.NewCertificates = false },
		}
	}},
	{name: "lost", only: []Anchor{Before, Started, Configured}, draw: func(random *rand.Rand, _ *Plan, _ string) knob {
		loss := pick(random, emulator.LostLink, emulator.LostDisk)

		return knob{
			words: "is lost once it has its config: " + loss.String(), class: silent,
			on: func(f *emulator.Faults) { f.Lost = loss }, off: func(f *emulator.Faults) { f.Lost = emulator.NotLost },
		}
	}},
	{name: "lingering", only: []Anchor{Before, Started}, draw: func(random *rand.Rand, _ *Plan, _ string) knob {
		more := between(random, time.Second, time.Minute)

		return knob{
			words: fmt.Sprintf("stays in maintenance for %s after it took its config", more), class: harmless,
			on: func(f *emulator.Faults) { f.Lingers = more }, off: func(f *emulator.Faults) { f.Lingers = 0 },
		}
	}},
	{name: "failing install", only: []Anchor{Before, Started, Configured}, draw: drawInstall},
	{name: "slow install", only: []Anchor{Before, Started, Configured},
		draw: func(random *rand.Rand, _ *Plan, _ string) knob {
			stall := between(random, time.Minute, 12*time.Minute)

			return knob{
				words: fmt.Sprintf("installs without a sign of life for %s", stall), class: slow,
				on: func(f *emulator.Faults) { f.InstallStall = stall }, off: func(f *emulator.Faults) { f.InstallStall = 0 },
			}
		}},
	{name: "forgetful", only: []Anchor{Before, Started, Configured}, draw: func(*rand.Rand, *Plan, string) knob {
		return knob{
			words: "forgets at each boot what was installed", class: installFailed, forgets: true,
			on: func(f *emulator.Faults) { f.Forgets = true }, off: func(f *emulator.Faults) { f.Forgets = false },
		}
	}},
	{name: "boot loop", only: []Anchor{Before, Started, Configured}, draw: func(*rand.Rand, *Plan, string) knob {
		return knob{
			words: "reboots for ever", class: looping,
			on: func(f *emulator.Faults) { f.BootLoop = true }, off: func(f *emulator.Faults) { f.BootLoop = false },
		}
	}},
	{name: "busy with its disk", draw: func(*rand.Rand, *Plan, string) knob {
		return knob{
			words: "waits for its META volume before it takes a config", class: stalled,
			on: func(f *emulator.Faults) { f.MetaNotReady = true }, off: func(f *emulator.Faults) { f.MetaNotReady = false },
		}
	}},
	{name: "time not synced", draw: func(*rand.Rand, *Plan, string) knob {
		return knob{
			words: "has no time server", class: unsynced,
			on: func(f *emulator.Faults) { f.TimeUnsynced = true }, off: func(f *emulator.Faults) { f.TimeUnsynced = false },
		}
	}},
	{name: "wrong clock", draw: func(random *rand.Rand, _ *Plan, _ string) knob {
		offset := pick(random, 2*time.Minute, 25*time.Hour, 400*24*time.Hour) * time.Duration(pick(random, -1, 1))

		return knob{
			words: fmt.Sprintf("has a clock that is off by %s", offset), class: offClock,
			on: func(f *emulator.Faults) { f.ClockOffset = offset }, off: func(f *emulator.Faults) { f.ClockOffset = 0 },
		}
	}},
	{name: "trustd down", whom: controlPlanes, draw: func(*rand.Rand, *Plan, string) knob {
		return knob{
			words: "runs no trustd", class: signerDown,
			on: func(f *emulator.Faults) { f.TrustdDown = true }, off: func(f *emulator.Faults) { f.TrustdDown = false },
		}
	}},
	{name: "failing Bootstrap", whom: controlPlanes, draw: func(random *rand.Rand, _ *Plan, _ string) knob {
		kind := pick(random, emulator.BootstrapTypeUnset, emulator.BootstrapEtcdStuck, emulator.BootstrapEtcdStartFails)

		return knob{
			words: "refuses to bootstrap: " + [...]string{"", "its type is unset", "its etcd does not stop",
				"its etcd does not start"}[kind], class: bootstrapFails,
			on:  func(f *emulator.Faults) { f.Bootstrap = kind },
			off: func(f *emulator.Faults) { f.Bootstrap = emulator.BootstrapWorks },
		}
	}},
	{name: "etcd without image", whom: controlPlanes, draw: func(*rand.Rand, *Plan, string) knob {
		return knob{
			words: "can't pull the image of etcd", class: etcdStuck,
			on: func(f *emulator.Faults) { f.EtcdImage = true }, off: func(f *emulator.Faults) { f.EtcdImage = false },
		}
	}},
	{name: "etcd never joins", whom: controlPlanes, draw: func(*rand.Rand, *Plan, string) knob {
		return knob{
			words: "has an etcd that does not join", class: etcdApart,
			on: func(f *emulator.Faults) { f.EtcdNever = true }, off: func(f *emulator.Faults) { f.EtcdNever = false },
		}
	}},
	{name: "etcd joins late", whom: controlPlanes, draw: func(random *rand.Rand, _ *Plan, _ string) knob {
		late := between(random, time.Minute, 10*time.Minute)

		return knob{
			words: fmt.Sprintf("has an etcd that takes %s longer to join", late), class: etcdApart,
			on: func(f *emulator.Faults) { f.EtcdJoin = late }, off: func(f *emulator.Faults) { f.EtcdJoin = 0 },
		}
	}},
	{name: "etcd unhealthy", whom: controlPlanes, draw: func(*rand.Rand, *Plan, string) knob {
		return knob{
			words: "has an etcd that fails its health checks", class: etcdApart,
			on: func(f *emulator.Faults) { f.EtcdUnhealthy = true }, off: func(f *emulator.Faults) { f.EtcdUnhealthy = false },
		}
	}},
	{name: "Kubernetes API down", whom: controlPlanes, draw: func(*rand.Rand, *Plan, string) knob {
		return knob{
			words: "does not start its kube-apiserver", class: apiDown,
			on: func(f *emulator.Faults) { f.KubernetesDown = true }, off: func(f *emulator.Faults) { f.KubernetesDown = false },
		}
	}},
	{name: "kubelet down", draw: func(*rand.Rand, *Plan, string) knob {
		return knob{
			words: "has a kubelet that does not get healthy", class: kubeletIll,
			on: func(f *emulator.Faults) { f.KubeletDown = true }, off: func(f *emulator.Faults) { f.KubeletDown = false },
		}
	}},
	{name: "broken calls", draw: drawCalls},
}

func drawImpostor(random *rand.Rand, _ *Plan, _ string) knob {
	kinds := []struct {
		is    emulator.Impostor
		words string
		class Class
	}{
		{emulator.HTTPSImpostor, "a web server with TLS", notTalos},
		{emulator.PlainHTTPImpostor, "a web server", notTalos},
		{emulator.SSHImpostor, "an SSH server", notTalos},
		{emulator.MuteImpostor, "something that never says a word", silent},
		{emulator.HangUpImpostor, "something that hangs up", refused},
	}
	kind := kinds[random.IntN(len(kinds))]

	return knob{
		words: kind.words + " answers in its place", class: kind.class,
		on:  func(f *emulator.Faults) { f.Impostor = kind.is },
		off: func(f *emulator.Faults) { f.Impostor = emulator.NoImpostor },
	}
}

func drawInstall(random *rand.Rand, _ *Plan, _ string) knob {
	reasons := []string{
		emulator.InstallDiskMissing: "its disk does not exist", emulator.InstallImagePull: "its image can't be pulled",
		emulator.InstallDiskWrite: "its disk breaks", emulator.InstallImageSlow: "its image takes too long",
	}
	reason := emulator.InstallFault(1 + random.IntN(len(reasons)-1))
	times, words := random.IntN(3), "every install fails"

	if times > 0 {
		words = fmt.Sprintf("%s fails", counted(times, "install"))
	}

	return knob{
		words: fmt.Sprintf("%s, since %s", words, reasons[reason]), class: installFailed,
		on:  func(f *emulator.Faults) { f.Install, f.InstallTimes = reason, times },
		off: func(f *emulator.Faults) { f.Install, f.InstallTimes = emulator.InstallWorks, 0 },
	}
}

// calls that the recipe makes, the ones that change something more often than the others; and the resources that it
// reads.
var (
	calls = []string{
		"ApplyConfiguration", "ApplyConfiguration", "ApplyConfiguration", "Bootstrap", "Bootstrap", "Bootstrap",
		"/cosi.resource.State/Get", "/cosi.resource.State/List", "/cosi.resource.State/Watch", "/machine.MachineService/List",
		"ServiceList", "EtcdStatus", "EtcdMemberList", "Kubeconfig", "Events", "Version", "*",
	}
	resources = []string{
		"", "", "LinkStatuses.net.talos.dev", "MachineStatuses.runtime.talos.dev", "MachineConfigs.config.talos.dev",
		"SystemInformations.hardware.talos.dev", "Disks.block.talos.dev",
	}
)

// longCalls have a node work for minutes.
var longCalls = []string{"Upgrade", "/machine.ImageService/Pull"}

func drawCalls(random *rand.Rand, _ *Plan, _ string) knob { return drawCallsOf(random, calls) }

// drawCallsOf breaks one of these calls.
func drawCallsOf(random *rand.Rand, methods []string) knob {
	call := emulator.CallFault{
		Method: methods[random.IntN(len(methods))],
		When:   pick(random, emulator.BeforeEffect, emulator.AfterEffect),
		Do:     pick(random, emulator.Cut, emulator.Hang, emulator.Fail, emulator.Freeze),
		After:  random.IntN(3),
		Times:  random.IntN(4),
	}

	// What takes minutes is bounded by the wall's clock, for which nobody waits here.
	if call.Do == emulator.Hang && slices.Contains(longCalls, call.Method) {
		call.Do = emulator.Cut
	}

	what := call.Method

	if strings.Contains(call.Method, ".State/") {
		call.Resource = pick(random, resources...)
		what += " " + call.Resource
	}

	class := brokenCalls

	if call.Do == emulator.Fail {
		class = refusedCalls
		call.Code = pick(random, codes.Unavailable, codes.FailedPrecondition, codes.Unknown, codes.Internal,
			codes.DeadlineExceeded)
		call.Text = "something is wrong"
	}

	how := [...]string{emulator.Cut: "are cut", emulator.Hang: "hang", emulator.Fail: "fail with " + call.Code.String(),
		emulator.Freeze: "freeze their connection"}
	when := [...]string{emulator.BeforeEffect: "before", emulator.AfterEffect: "after"}
	times := "all"

	if call.Times > 0 {
		times = strconv.Itoa(call.Times)
	}

	return knob{
		words: fmt.Sprintf("%s calls of %s %s %s they took effect, after %d that go well", times, strings.TrimSpace(what),
			how[call.Do], when[call.When], call.After),
		class: class,
		on:    func(f *emulator.Faults) { f.Calls = append(f.Calls, call) },
		off:   func(f *emulator.Faults) { f.Calls = nil },
	}
}

func pick[T any](random *rand.Rand, choices ...T) T { return choices[random.IntN(len(choices))] }

// between draws a time, in whole seconds.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64((most-least)/time.Second)+1))*time.Second
}
