package scenario

import (
	"github.com/cosi-project/runtime/api/v1alpha1"
	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	inspectapi "github.com/siderolabs/talos/pkg/machinery/api/inspect"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	storageapi "github.com/siderolabs/talos/pkg/machinery/api/storage"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"google.golang.org/grpc"
)

// methods are the names of all calls of the Talos API, without their services and with them, as in
// "/machine.MachineService/List".
func methods() []string {
	var names []string

	for _, service := range []grpc.ServiceDesc{
		machineapi.MachineService_ServiceDesc, machineapi.ImageService_ServiceDesc, machineapi.LifecycleService_ServiceDesc,
		machineapi.DebugService_ServiceDesc, machineapi.LVMService_ServiceDesc, machineapi.MDService_ServiceDesc,
		clusterapi.ClusterService_ServiceDesc, inspectapi.InspectService_ServiceDesc,
		storageapi.StorageService_ServiceDesc, timeapi.TimeService_ServiceDesc, v1alpha1.State_ServiceDesc,
	} {
		for _, method := range service.Methods {
			names = append(names, method.MethodName, "/"+service.ServiceName+"/"+method.MethodName)
		}

		for _, stream := range service.Streams {
			names = append(names, stream.StreamName, "/"+service.ServiceName+"/"+stream.StreamName)
		}
	}

	return names
}
