package faults

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Call is one RPC that a machine received, whatever became of it.
type Call struct {
	// Time and Ended are the wall clock's; Ended is zero until the call has ended.
	Time, Ended time.Time
	// Method is the full name, as in "/machine.MachineService/Bootstrap".
	Method string
	// Resource is the type of resource that a read asked for, as in "MachineStatuses.runtime.talos.dev"; empty for any
	// other call.
	Resource string
	// Mutating calls change the machine when they succeed; a dry run does not.
	Mutating bool
	Peer     string
	// Done is set when the call has ended, with Code.
	Done bool
	Code codes.Code
	// Working is set while the machine is at it: after the call was let in, until it is answered. Streams leave it unset.
	Working bool
	// Roles are those of the caller.
	Roles string
	// Metadata came with the call, from the caller or from the node that forwarded it.
	Metadata metadata.MD
	// HadEtcd reports whether the machine held etcd data when the call arrived.
	HadEtcd bool
	// ConfigSHA256 is the hex digest of the machine config that an ApplyConfiguration carried.
	ConfigSHA256 string
	// Reset is what a Reset asked for; nil for any other call.
	Reset *machineapi.ResetRequest

	kept bool // the result is recorded already, the reply was lost
}

// Succeeded reports whether the call ended without an error.
func (c Call) Succeeded() bool { return c.Done && c.Code == codes.OK }

// Name is the method without its service.
func (c Call) Name() string { return methodName(c.Method) }

func methodName(full string) string { return full[strings.LastIndexByte(full, '/')+1:] }

// mutatingMethods change a machine. ApplyConfiguration is looked at more closely, since a dry run changes nothing.
var mutatingMethods = map[string]bool{
	"ApplyConfiguration": true, "Bootstrap": true, "EtcdAlarmDisarm": true, "EtcdDefragment": true,
	"EtcdDowngradeCancel": true,
	"EtcdDowngradeEnable": true, "EtcdForfeitLeadership": true, "EtcdLeaveCluster": true, "EtcdRecover": true,
	"EtcdRemoveMemberByID": true,
	"MetaDelete":           true, "MetaWrite": true, "Reboot": true, "Reset": true, "Restart": true, "Rollback": true,
	"ServiceRestart": true,
	"ServiceStart":   true, "ServiceStop": true, "Shutdown": true, "Upgrade": true, "ImagePull": true,
	"BlockDeviceWipe":                   true,
	"/machine.LifecycleService/Install": true, "/machine.ImageService/Pull": true, "/machine.ImageService/Import": true,
	"/machine.ImageService/Remove":            true,
	"/machine.LVMService/LogicalVolumeRemove": true, "/machine.LVMService/PhysicalVolumeRemove": true,
	"/machine.LVMService/VolumeGroupRemove": true, "/machine.MDService/Destroy": true,
	"/cosi.resource.State/Create": true, "/cosi.resource.State/Update": true, "/cosi.resource.State/Destroy": true,
	"/cosi.resource.State/Teardown": true, "/cosi.resource.State/TeardownAndDestroy": true,
}

// NewCall describes a call that has just arrived, for a caller with these roles.
func NewCall(ctx context.Context, method string, request any, roles string) *Call {
	call := &Call{
		Time:     time.Now(),
		Method:   method,
		Resource: resourceOf(method, request),
		Mutating: mutatingMethods[methodName(method)] || mutatingMethods[method],
		Roles:    roles,
	}

	call.Metadata, _ = metadata.FromIncomingContext(ctx)

	if p, ok := peer.FromContext(ctx); ok {
		call.Peer = p.Addr.String()
	}

	if apply, ok := request.(*machineapi.ApplyConfigurationRequest); ok {
		digest := sha256.Sum256(apply.GetData())
		call.ConfigSHA256 = hex.EncodeToString(digest[:])
		call.Mutating = !apply.GetDryRun()
	}

	call.Reset, _ = request.(*machineapi.ResetRequest)

	return call
}

// resourceOf is the type of resource that a call reads.
func resourceOf(method string, request any) string {
	if read, ok := request.(interface{ GetType() string }); ok && strings.HasPrefix(method, "/cosi.resource.State/") {
		return read.GetType()
	}

	return ""
}

// Recorder notes the calls that a machine receives.
type Recorder struct {
	mu    sync.Mutex
	calls []*Call
}

// Add notes a call, and gives what is known of it so far.
func (r *Recorder) Add(call *Call) Call {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.calls = append(r.calls, call)

	return *call
}

// Asks notes what a streaming call asks for, which comes after the call itself.
func (r *Recorder) Asks(call *Call, request any) {
	r.mu.Lock()
	defer r.mu.Unlock()

	call.Resource = resourceOf(call.Method, request)
}

// End notes how a call has ended.
func (r *Recorder) End(call *Call, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if call.kept {
		return
	}

	call.Done, call.Ended = true, time.Now()
	call.Code = status.Code(err)
}

// Begin notes that the machine is at what was asked for; the function that it returns, that it no longer is.
func (r *Recorder) Begin(call *Call) (end func()) {
	r.working(call, true)

	return func() { r.working(call, false) }
}

func (r *Recorder) working(call *Call, working bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	call.Working = working
}

// Keep makes the recorded result of a call final.
func (r *Recorder) Keep(call *Call) {
	r.mu.Lock()
	defer r.mu.Unlock()

	call.kept = true
}

// All are the calls in order of arrival.
func (r *Recorder) All() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()

	calls := make([]Call, 0, len(r.calls))
	for _, call := range r.calls {
		calls = append(calls, *call)
	}

	return calls
}
