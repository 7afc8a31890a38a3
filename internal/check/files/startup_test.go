package files_test

import (
	"strings"
	"testing"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// workerWith is a machine config of a worker with this below machine.
func workerWith(machine string) config { return config{role: "worker", machine: machine} }

func TestFilesThatTalosRefuses(t *testing.T) {
	t.Parallel()

	file := func(path, op string) config {
		return config{machine: "files:\n\t- path: " + path + "\n\t  op: " + op + "\n\t  permissions: 0o644\n\t  content: a"}
	}

	judge(t, diagnosis.MachineFileRefused, map[string]trial{
		"in etc": {files: lab(file("/etc/motd", "create")), line: "- path: /etc/motd",
			cause: "/etc/motd is to be created, and that is possible below /var only"},
		"called alike": {files: lab(file("/variables/a", "create")), cause: "/variables/a"},
		"a slip": {files: lab(file("/var/a", "overwirte")), line: "op: overwirte",
			cause: `the op of /var/a is "overwirte", and Talos knows only create, append, overwrite`},
		"no op": {files: lab(config{machine: "files:\n\t- path: /etc/kubernetes/manifests/a.yaml\n\t  content: a"}),
			cause: `the op of /etc/kubernetes/manifests/a.yaml is ""`},
		"in var":       {files: lab(file("/var/lib/a", "create"), file("/var/etc/a", "create"))},
		"replaced":     {files: lab(file("/etc/nfsmount.conf", "overwrite"), file("/etc/a", "append"))},
		"containerd's": {files: lab(file("/etc/cri/conf.d/20-customization.part", "create"))},
		"a static pod": {files: lab(file("/etc/kubernetes/manifests/a.yaml", "create"))},
	})
}

func TestMountsWhoseSourceCantExist(t *testing.T) {
	t.Parallel()

	mount := func(source string) config {
		return config{machine: "kubelet:\n\textraMounts:\n\t\t- destination: /var/mnt/a\n\t\t  type: bind\n\t\t  source: " +
			source + "\n\t\t  options: [bind, rshared, rw]"}
	}

	judge(t, diagnosis.MountSourceImpossible, map[string]trial{
		"its own folder": {files: lab(mount("/data/longhorn")), line: "source: /data/longhorn",
			cause: "/data/longhorn does not exist"},
		"below mnt": {files: lab(mount("/mnt/storage")), cause: "/mnt/storage"},
		"in var":    {files: lab(mount("/var/lib/longhorn"), mount("/var/mnt/storage"), mount("/var/openebs/local"))},
		"the system's": {files: lab(mount("/dev"), mount("/run/udev"), mount("/sys"), mount("/opt/local"),
			mount("/mnt"))},
		"an image's":      {files: lab(mount("/usr/local/share"), mount("/etc/ssl"), mount("/lib/modules"))},
		"without a mount": {files: lab(config{})},
	})
}

func TestInlineManifestsThatAreNone(t *testing.T) {
	t.Parallel()

	manifest := func(contents string) config {
		return config{cluster: "inlineManifests:\n\t- name: extras\n\t  contents: |-\n\t    " +
			strings.ReplaceAll(contents, "\n", "\n\t    ")}
	}

	judge(t, diagnosis.ManifestUnusable, map[string]trial{
		"no YAML": {files: lab(manifest("kind: [ConfigMap\nname: a")), line: "contents: (masked)",
			cause: "the inline manifest extras is not valid YAML"},
		"a template":   {files: lab(manifest("{{ if .Values.a }}\nkind: ConfigMap\n{{ end }}")), cause: "not valid YAML"},
		"a word":       {files: lab(manifest("nothing")), cause: "is no object of Kubernetes (line 1 of it)"},
		"a list":       {files: lab(manifest("- kind: ConfigMap")), cause: "is no object"},
		"without kind": {files: lab(manifest("apiVersion: v1\nmetadata: {name: a}")), cause: "an object without kind"},
		"the second": {files: lab(manifest("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\nkind: Secret")),
			cause: "an object without apiVersion (line 5 of it)"},
		"without a name": {files: lab(manifest("apiVersion: v1\nkind: Namespace")),
			cause: "an object without metadata.name"},
		"right": {files: lab(manifest("# all\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n\n---\n"+
			"apiVersion: v1\nkind: Pod\nmetadata: {generateName: a}\n"),
			manifest("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Namespace, metadata: {name: b}}]"),
			manifest("# nothing yet"))},
		"of a worker": {files: lab(config{}, config{role: "worker", cluster: manifest("nothing").cluster})},
	})
}

func TestArgumentsThatAComponentRefuses(t *testing.T) {
	t.Parallel()

	const image = "\n\timage: ghcr.io/siderolabs/kubelet:v1.36.0"

	arguments := func(component, argument string) config {
		return config{cluster: component + ":\n\textraArgs:\n\t\t" + argument}
	}
	kubelet := func(argument string) config {
		return config{machine: "kubelet:" + image + "\n\textraArgs:\n\t\t" + argument}
	}

	judge(t, diagnosis.ArgumentRefused, map[string]trial{
		"a field of the configuration": {files: lab(kubelet("maxPods: '250'")), line: "maxPods: '250'",
			cause: "the kubelet has no argument --maxPods"},
		"an argument in the configuration": {files: lab(config{machine: "kubelet:\n\textraConfig: {max-pods: 250}"}),
			cause: "the kubelet's configuration has no field max-pods"},
		"dashes in front": {files: lab(arguments("apiServer", "--v: '2'")), cause: "kube-apiserver has no argument ----v"},
		"Talos' own": {files: lab(arguments("etcd", "data-dir: /var/lib/other")),
			cause: "Talos sets --data-dir of etcd itself"},
		"the server's": {files: lab(arguments("apiServer", "etcd-servers: https://192.0.2.1:2379")),
			cause: "--etcd-servers"},
		"gone": {files: lab(kubelet("container-runtime: remote")),
			cause: "no --container-runtime since Kubernetes 1.27"},
		"gone since the release before": {files: lab(kubelet("pod-infra-container-image: registry.k8s.io/pause:3.10")),
			cause: "no --pod-infra-container-image since Kubernetes 1.35"},
		"of a cloud": {files: lab(config{machine: "kubelet:" + image,
			cluster: arguments("apiServer", "cloud-provider: external").cluster}, config{role: "worker",
			machine: "kubelet:" + image + "\n\textraArgs: {cloud-provider: external}"}),
			cause: "kube-apiserver has no --cloud-provider since Kubernetes 1.33"},
		"of kube-proxy": {files: lab(config{machine: "kubelet:" + image,
			cluster: arguments("proxy", "udp-timeout: 1s").cluster}), cause: "since Kubernetes 1.26"},
		"klog's": {files: lab(kubelet("log_dir: /var/log")), cause: "no --log_dir since Kubernetes 1.26"},
		"a slip": {files: lab(kubelet("max-podss: '250'")), line: "max-podss: (masked)",
			cause: "the kubelet has no argument --max-podss"},
		"a slip of etcd's": {files: lab(config{machine: "kubelet:" + image,
			cluster: arguments("etcd", "listen-metrics-url: http://0.0.0.0:2381").cluster}),
			cause: "etcd has no argument --listen-metrics-url"},
		"a gate by itself": {files: lab(arguments("scheduler", "feature-gates: A,B=true")),
			cause: "A is neither on nor off"},
		"a worker's": {files: lab(config{}, workerWith(kubelet("kubeconfig: /a").machine)),
			cause: "Talos sets --kubeconfig"},
		"right": {files: lab(kubelet("rotate-server-certificates: 'true'"),
			arguments("apiServer", "feature-gates: A=true,B=false"),
			arguments("controllerManager", "bind-address: 0.0.0.0"), arguments("scheduler", "bind-address: 0.0.0.0"),
			arguments("etcd", "listen-metrics-urls: http://0.0.0.0:2381"),
			arguments("proxy", "metrics-bind-address: 0.0.0.0:10249"),
			kubelet("log_flush_frequency: 10s\n\textraConfig: {maxPods: 250}"))},
		"of no release that is known": {files: lab(config{machine: strings.Replace(kubelet("max-podss: '250'").machine,
			"v1.36.0", "v1.99.0", 1)}, arguments("scheduler", "bind-adress: 0.0.0.0"), kubelet("our-own-argument: a"))},
		"a control plane's on a worker": {files: lab(config{}, config{role: "worker",
			cluster: arguments("apiServer", "--v: '2'").cluster})},
	})

	judge(t, diagnosis.ArgumentUndoes, map[string]trial{
		"services": {files: lab(arguments("network: {serviceSubnets: [10.43.0.0/16]}\napiServer",
			"service-cluster-ip-range: 10.99.0.0/16")), line: "service-cluster-ip-range: 10.99.0.0/16",
			cause: "--service-cluster-ip-range=10.99.0.0/16 of kube-apiserver undoes cluster.network.serviceSubnets, which is " +
				"10.43.0.0/16"},
		"pods": {files: lab(arguments("controllerManager", "cluster-cidr: 10.9.0.0/16")),
			cause: "cluster.network.podSubnets"},
		"the port": {files: lab(arguments("apiServer", "secure-port: '7443'")), cause: "which is 6443"},
		"no subnets": {files: lab(arguments("controllerManager", "allocate-node-cidrs: 'false'")),
			cause: "flannel needs the subnets"},
		"node IP": {files: lab(kubelet("node-ip: 198.51.100.1\n\tnodeIP: {validSubnets: [192.0.2.0/24]}")),
			cause: "--node-ip"},
		"extraConfig": {files: lab(kubelet("max-pods: '250'\n\textraConfig: {maxPods: 110}")),
			cause: "extraConfig.maxPods, which is 110"},
		"the same": {files: lab(kubelet("max-pods: '250'\n\textraConfig: {maxPods: 250}"),
			arguments("network: {podSubnets: [10.9.0.0/16]}\ncontrollerManager", "cluster-cidr: 10.9.0.0/16"),
			arguments("apiServer", "secure-port: '6443'"))},
		"another CNI": {files: lab(arguments("network: {cni: {name: none}}\ncontrollerManager",
			"allocate-node-cidrs: 'false'"))},
		"a node IP of the subnet": {files: lab(kubelet("node-ip: 192.0.2.11\n\tnodeIP: {validSubnets: [192.0.2.0/24]}"))},
	})
}

func TestLabelsAndTaintsThatKubernetesForbids(t *testing.T) {
	t.Parallel()

	arguments := func(argument string) string { return "kubelet:\n\textraArgs:\n\t\t" + argument }
	taint := func(fields string) string {
		return "kubelet:\n\textraConfig:\n\t\tregisterWithTaints:\n\t\t\t- {" + fields + "}"
	}

	judge(t, diagnosis.RegistrationRefused, map[string]trial{
		"a role": {files: lab(config{}, workerWith(arguments("node-labels: a=b,node-role.kubernetes.io/worker=worker"))),
			line:  "node-labels: a=b,node-role.kubernetes.io/worker=worker",
			cause: "does not start with the label node-role.kubernetes.io/worker"},
		"a control plane's": {files: lab(config{machine: arguments("node-labels: kubernetes.io/role=a")}),
			cause: "kubernetes.io/role"},
		"a broken label": {files: lab(config{machine: arguments("node-labels: a=b c")}), cause: "a=b c"},
		"a taint without an effect": {files: lab(config{}, workerWith(arguments("register-with-taints: a=b"))),
			cause: `the taint "a" has no effect that Kubernetes knows: ""`},
		"another effect": {files: lab(config{}, workerWith(taint("key: a, value: b, effect: NoScheduling"))),
			cause: `"NoScheduling"`},
		"a taint without a key": {files: lab(config{}, workerWith(taint("value: b, effect: NoSchedule"))),
			cause: "can't be set"},
		"right": {files: lab(config{machine: arguments("node-labels: node.kubernetes.io/instance-type=a,example.org/b=c")},
			workerWith(arguments("register-with-taints: 'a=b:NoSchedule,c:NoExecute'")),
			workerWith(taint("key: a, value: b, effect: PreferNoSchedule")),
			workerWith(taint("key: example.org/a, effect: NoExecute")))},
	})

	judge(t, diagnosis.WorkerTaints, map[string]trial{
		"a worker": {files: lab(config{}, workerWith("nodeTaints:\n\ta: b:NoSchedule")), line: "nodeTaints:",
			cause: "a worker may not set the taint a itself"},
		"a control plane": {files: lab(config{machine: "nodeTaints:\n\ta: b:NoSchedule"}, workerWith(""))},
	})
}
