package startup

import (
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/suggest"
)

// The minor versions of Kubernetes whose arguments are known.
const oldestKnown, newestKnown = 24, 37

// canonical is the name that the component knows an argument by. Those of Kubernetes take underscores for dashes.
func (c component) canonical(name string) string {
	if c.name == etcd {
		return name
	}

	return strings.ReplaceAll(name, "_", "-")
}

// lost is the minor version of Kubernetes that took an argument out, if one did.
func (c component) lost(name string) (minor int, listed bool) {
	name = c.canonical(name)

	if minor, listed = c.gone[name]; !listed && c.name != etcd {
		minor, listed = loggingGone[name]
	}

	return minor, listed
}

// meant is the argument that somebody meant by a name that no release has, but for a slip; empty if there is none.
func (c component) meant(name string) string {
	if _, listed := c.lost(name); listed || slices.Contains(c.known, c.canonical(name)) {
		return ""
	}

	return suggest.Slip(c.canonical(name), c.known)
}

// The arguments that components lost, up to Kubernetes 1.37, which lost none: those that the options of one release
// register and the next one's do not (cmd/*/app/options, pkg/kubelet/config and pkg/kubeapiserver/options of
// k8s.io/kubernetes, and the modules beside it).
var (
	kubeletGone = map[string]int{"network-plugin": 24, "cni-bin-dir": 24, "cni-conf-dir": 24,
		"experimental-kernel-memcg-notification": 25, "container-runtime": 27, "master-service-namespace": 27,
		"iptables-drop-bit": 31, "iptables-masquerade-bit": 31, "keep-terminated-pod-volumes": 31, "cloud-config": 34,
		"register-schedulable": 34, "pod-infra-container-image": 35}
	apiServerGone = map[string]int{"basic-auth-file": 19, "insecure-port": 24, "insecure-bind-address": 24,
		"service-account-api-audiences": 25, "identity-lease-duration-seconds": 26,
		"identity-lease-renew-interval-seconds": 26, "master-service-namespace": 27, "cloud-config": 33,
		"cloud-provider": 33}
	controllerManagerGone = map[string]int{"port": 24, "address": 24, "deleting-pods-burst": 25, "deleting-pods-qps": 25,
		"experimental-cluster-signing-duration": 25, "register-retry-count": 25, "pod-eviction-timeout": 27,
		"enable-taint-manager": 27, "horizontal-pod-autoscaler-downscale-delay": 31,
		"horizontal-pod-autoscaler-upscale-delay": 31, "volume-host-allow-local-loopback": 31,
		"volume-host-cidr-denylist": 31}
	schedulerGone = map[string]int{"policy-config-file": 23, "algorithm-provider": 23, "port": 24, "address": 24,
		"lock-object-name": 28, "lock-object-namespace": 28}
	proxyGone = map[string]int{"udp-timeout": 26, "proxy-port-range": 31}
	// loggingGone are klog's, which all components of Kubernetes lost.
	loggingGone = map[string]int{"add-dir-header": 26, "alsologtostderr": 26, "log-backtrace-at": 26, "log-dir": 26,
		"log-file": 26, "log-file-max-size": 26, "logtostderr": 26, "one-output": 26, "skip-headers": 26,
		"skip-log-headers": 26, "stderrthreshold": 26}
)

// The arguments that components have in Kubernetes 1.37: what their options register, in the packages that those they
// lost were found in. So each that a release from 1.24 on has is here or among the lost ones, but for some of
// cAdvisor's that nothing here is near to. etcd's are those of 3.5 to 3.7 (server/embed and server/etcdmain of
// go.etcd.io/etcd).
var (
	kubeletKnown           = strings.Fields(everyFlag + kubeletFlag)
	apiServerKnown         = strings.Fields(everyFlag + servingFlag + apiServerFlag)
	controllerManagerKnown = strings.Fields(everyFlag + servingFlag + electingFlag + controllerManagerFlag)
	schedulerKnown         = strings.Fields(everyFlag + servingFlag + electingFlag + schedulerFlag)
	proxyKnown             = strings.Fields(everyFlag + proxyFlag)
	etcdKnown              = strings.Fields(etcdFlag)
)

const (
	everyFlag = `
		allow-metric-labels allow-metric-labels-manifest disabled-metrics emulated-version feature-gates kubeconfig
		log-flush-frequency log-json-info-buffer-size log-json-split-stream log-text-info-buffer-size
		log-text-split-stream logging-format min-compatibility-version show-hidden-metrics-for-version v version vmodule
	`
	// servingFlag are those of kube-apiserver, kube-controller-manager and kube-scheduler.
	servingFlag = `
		authentication-kubeconfig authentication-skip-lookup authentication-token-webhook-cache-ttl
		authentication-tolerate-lookup-failure authorization-always-allow-paths authorization-kubeconfig
		authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl bind-address cert-dir
		client-ca-file contention-profiling disable-http2-serving http2-max-streams-per-connection
		permit-address-sharing permit-port-sharing profiling requestheader-allowed-names requestheader-client-ca-file
		requestheader-extra-headers-prefix requestheader-group-headers requestheader-uid-headers
		requestheader-username-headers secure-port tls-cert-file tls-cipher-suites tls-curve-preferences tls-min-version
		tls-private-key-file tls-sni-cert-key
	`
	// electingFlag are those of the latter two.
	electingFlag = `
		kube-api-burst kube-api-content-type kube-api-qps leader-elect leader-elect-lease-duration
		leader-elect-renew-deadline leader-elect-resource-lock leader-elect-resource-name
		leader-elect-resource-namespace leader-elect-retry-period master
	`
	kubeletFlag = `
		address allowed-unsafe-sysctls anonymous-auth authentication-token-webhook
		authentication-token-webhook-cache-ttl authorization-mode authorization-webhook-cache-authorized-ttl
		authorization-webhook-cache-unauthorized-ttl bootstrap-kubeconfig cert-dir cgroup-driver cgroup-root
		cgroups-per-qos client-ca-file cloud-provider cluster-dns cluster-domain config config-dir
		container-log-max-files container-log-max-size container-runtime-endpoint contention-profiling cpu-cfs-quota
		cpu-cfs-quota-period cpu-manager-policy cpu-manager-policy-options cpu-manager-reconcile-period
		enable-controller-attach-detach enable-debugging-handlers enable-server enforce-node-allocatable event-burst
		event-qps eviction-hard eviction-max-pod-grace-period eviction-minimum-reclaim
		eviction-pressure-transition-period eviction-soft eviction-soft-grace-period exit-on-lock-contention
		experimental-allocatable-ignore-eviction experimental-mounter-path fail-cgroupv1 fail-swap-on
		file-check-frequency hairpin-mode healthz-bind-address healthz-port hostname-override housekeeping-interval
		http-check-frequency image-credential-provider-bin-dir image-credential-provider-config image-gc-high-threshold
		image-gc-low-threshold image-service-endpoint kernel-memcg-notification kube-api-burst kube-api-content-type
		kube-api-qps kube-reserved kube-reserved-cgroup kubelet-cgroups local-storage-capacity-isolation lock-file
		make-iptables-util-chains manifest-url manifest-url-header max-open-files max-pods maximum-dead-containers
		maximum-dead-containers-per-container memory-manager-policy minimum-container-ttl-duration
		minimum-image-ttl-duration node-ip node-labels node-status-max-images node-status-update-frequency oom-score-adj
		pod-cidr pod-manifest-path pod-max-pids pods-per-core port protect-kernel-defaults provider-id qos-reserved
		read-only-port register-node register-with-taints registry-burst registry-qps reserved-cpus reserved-memory
		resolv-conf root-dir rotate-certificates rotate-server-certificates runonce runtime-cgroups
		runtime-request-timeout seccomp-default serialize-image-pulls streaming-connection-idle-timeout sync-frequency
		system-cgroups system-reserved system-reserved-cgroup tls-cert-file tls-cipher-suites tls-min-version
		tls-private-key-file topology-manager-policy topology-manager-policy-options topology-manager-scope
		volume-plugin-dir volume-stats-agg-period
	`
	apiServerFlag = `
		admission-control admission-control-config-file advertise-address aggregator-reject-forwarding-redirect
		allow-privileged anonymous-auth api-audiences apiserver-count audit-log-batch-buffer-size
		audit-log-batch-max-size audit-log-batch-max-wait audit-log-batch-throttle-burst audit-log-batch-throttle-enable
		audit-log-batch-throttle-qps audit-log-compress audit-log-format audit-log-maxage audit-log-maxbackup
		audit-log-maxsize audit-log-mode audit-log-path audit-log-truncate-enabled audit-log-truncate-max-batch-size
		audit-log-truncate-max-event-size audit-log-version audit-policy-file audit-webhook-batch-buffer-size
		audit-webhook-batch-initial-backoff audit-webhook-batch-max-size audit-webhook-batch-max-wait
		audit-webhook-batch-throttle-burst audit-webhook-batch-throttle-enable audit-webhook-batch-throttle-qps
		audit-webhook-config-file audit-webhook-initial-backoff audit-webhook-mode audit-webhook-truncate-enabled
		audit-webhook-truncate-max-batch-size audit-webhook-truncate-max-event-size audit-webhook-version
		authentication-config authentication-token-webhook-config-file authentication-token-webhook-version
		authorization-config authorization-mode authorization-policy-file authorization-webhook-config-file
		authorization-webhook-version coordinated-leadership-lease-duration coordinated-leadership-renew-deadline
		coordinated-leadership-retry-period cors-allowed-origins debug-socket-path
		default-not-ready-toleration-seconds default-unreachable-toleration-seconds default-watch-cache-size
		delete-collection-workers disable-admission-plugins egress-selector-config-file emulation-forward-compatible
		enable-admission-plugins enable-aggregator-routing enable-bootstrap-token-auth enable-garbage-collector
		enable-logs-handler enable-priority-and-fairness encryption-provider-config
		encryption-provider-config-automatic-reload endpoint-reconciler-type etcd-cafile etcd-certfile
		etcd-compaction-interval etcd-count-metric-poll-period etcd-db-metric-poll-interval etcd-healthcheck-timeout
		etcd-keyfile etcd-prefix etcd-readycheck-timeout etcd-servers etcd-servers-overrides event-ttl external-hostname
		goaway-chance kubelet-certificate-authority kubelet-client-certificate kubelet-client-key kubelet-port
		kubelet-preferred-address-types kubelet-read-only-port kubelet-timeout kubernetes-service-node-port
		lease-reuse-duration-seconds livez-grace-period max-connection-bytes-per-sec max-mutating-requests-inflight
		max-requests-inflight min-request-timeout oidc-ca-file oidc-client-id oidc-groups-claim oidc-groups-prefix
		oidc-issuer-url oidc-required-claim oidc-signing-algs oidc-username-claim oidc-username-prefix peer-advertise-ip
		peer-advertise-port peer-ca-file proxy-client-cert-file proxy-client-key-file request-timeout runtime-config
		runtime-config-emulation-forward-compatible service-account-extend-token-expiration service-account-issuer
		service-account-jwks-uri service-account-key-file service-account-lookup service-account-max-token-expiration
		service-account-signing-endpoint service-account-signing-key-file service-cluster-ip-range
		service-node-port-range shutdown-delay-duration shutdown-send-retry-after
		shutdown-watch-termination-grace-period storage-backend storage-initialization-timeout storage-media-type
		strict-transport-security-directives token-auth-file tracing-config-file watch-cache watch-cache-sizes
	`
	controllerManagerFlag = `
		allocate-node-cidrs allow-untagged-cloud attach-detach-reconcile-sync-period cidr-allocator-type cloud-config
		cloud-provider cluster-cidr cluster-name cluster-signing-cert-file cluster-signing-duration
		cluster-signing-key-file cluster-signing-kube-apiserver-client-cert-file
		cluster-signing-kube-apiserver-client-key-file cluster-signing-kubelet-client-cert-file
		cluster-signing-kubelet-client-key-file cluster-signing-kubelet-serving-cert-file
		cluster-signing-kubelet-serving-key-file cluster-signing-legacy-unknown-cert-file
		cluster-signing-legacy-unknown-key-file concurrent-cron-job-syncs concurrent-daemonset-syncs
		concurrent-deployment-syncs concurrent-device-taint-eviction-syncs concurrent-disruption-syncs
		concurrent-endpoint-syncs concurrent-ephemeralvolume-syncs concurrent-gc-syncs
		concurrent-horizontal-pod-autoscaler-syncs concurrent-job-syncs concurrent-namespace-syncs
		concurrent-node-lifecycle-syncs concurrent-node-status-updates concurrent-node-syncs concurrent-rc-syncs
		concurrent-replicaset-syncs concurrent-resource-quota-syncs concurrent-resourceclaim-syncs
		concurrent-service-endpoint-syncs concurrent-service-syncs concurrent-serviceaccount-token-syncs
		concurrent-statefulset-syncs concurrent-ttl-after-finished-syncs
		concurrent-validating-admission-policy-status-syncs configure-cloud-routes controller-start-interval controllers
		disable-attach-detach-reconcile-sync disable-force-detach-on-timeout enable-dynamic-provisioning
		enable-garbage-collector enable-hostpath-provisioner enable-leader-migration endpoint-updates-batch-period
		endpointslice-updates-batch-period external-cloud-volume-plugin flex-volume-plugin-dir
		horizontal-pod-autoscaler-cpu-initialization-period horizontal-pod-autoscaler-downscale-stabilization
		horizontal-pod-autoscaler-initial-readiness-delay horizontal-pod-autoscaler-sync-period
		horizontal-pod-autoscaler-tolerance large-cluster-size-threshold leader-migration-config
		legacy-service-account-token-clean-up-period max-endpoints-per-slice min-resync-period
		mirroring-concurrent-service-endpoint-syncs mirroring-endpointslice-updates-batch-period
		mirroring-max-endpoints-per-subset namespace-sync-period node-cidr-mask-size node-cidr-mask-size-ipv4
		node-cidr-mask-size-ipv6 node-eviction-rate node-monitor-grace-period node-monitor-period
		node-startup-grace-period node-status-update-frequency node-sync-period pv-recycler-increment-timeout-nfs
		pv-recycler-maximum-retry pv-recycler-minimum-timeout-hostpath pv-recycler-minimum-timeout-nfs
		pv-recycler-pod-template-filepath-hostpath pv-recycler-pod-template-filepath-nfs
		pv-recycler-timeout-increment-hostpath pvclaimbinder-sync-period resource-quota-sync-period root-ca-file
		route-reconciliation-period secondary-node-eviction-rate service-account-private-key-file
		service-cluster-ip-range terminated-pod-gc-threshold unhealthy-zone-threshold use-service-account-credentials
		webhook-bind-address webhook-cert-dir webhook-disable-http2-serving webhook-secure-port webhook-tls-cert-file
		webhook-tls-cipher-suites webhook-tls-curve-preferences webhook-tls-min-version webhook-tls-private-key-file
		webhook-tls-sni-cert-key webhooks
	`
	schedulerFlag = `
		config pod-max-in-unschedulable-pods-duration write-config-to
	`
	proxyFlag = `
		bind-address bind-address-hard-fail cleanup cluster-cidr config config-sync-period conntrack-max-per-core
		conntrack-min conntrack-tcp-be-liberal conntrack-tcp-timeout-close-wait conntrack-tcp-timeout-established
		conntrack-udp-timeout conntrack-udp-timeout-stream detect-local-mode healthz-bind-address healthz-port
		hostname-override init-only iptables-localhost-nodeports iptables-masquerade-bit iptables-min-sync-period
		iptables-sync-period ipvs-exclude-cidrs ipvs-min-sync-period ipvs-scheduler ipvs-strict-arp ipvs-sync-period
		ipvs-tcp-timeout ipvs-tcpfin-timeout ipvs-udp-timeout kube-api-burst kube-api-content-type kube-api-qps
		masquerade-all master metrics-bind-address metrics-port nodeport-addresses oom-score-adj pod-bridge-interface
		pod-interface-name-prefix profiling proxy-mode write-config-to
	`
	etcdFlag = `
		advertise-client-urls auth-token auth-token-ttl auto-compaction-mode auto-compaction-retention auto-tls
		backend-batch-interval backend-batch-limit backend-bbolt-freelist-type bcrypt-cost
		bootstrap-defrag-threshold-megabytes cert-file cipher-suites client-cert-allowed-hostname client-cert-auth
		client-cert-file client-crl-file client-key-file compact-hash-check-time compaction-batch-limit
		compaction-sleep-interval config-file corrupt-check-time cors data-dir discovery discovery-cacert discovery-cert
		discovery-dial-timeout discovery-endpoints discovery-fallback discovery-insecure-skip-tls-verify
		discovery-insecure-transport discovery-keepalive-time discovery-keepalive-timeout discovery-key
		discovery-password discovery-proxy discovery-request-timeout discovery-srv discovery-srv-name discovery-token
		discovery-user distributed-tracing-address distributed-tracing-instance-id distributed-tracing-sampling-rate
		distributed-tracing-service-name downgrade-check-time election-timeout enable-distributed-tracing
		enable-grpc-gateway enable-log-rotation enable-pprof enable-v2 experimental-bootstrap-defrag-threshold-megabytes
		experimental-compact-hash-check-enabled experimental-compact-hash-check-time experimental-compaction-batch-limit
		experimental-compaction-sleep-interval experimental-corrupt-check-time experimental-distributed-tracing-address
		experimental-distributed-tracing-instance-id experimental-distributed-tracing-sampling-rate
		experimental-distributed-tracing-service-name experimental-downgrade-check-time
		experimental-enable-distributed-tracing experimental-enable-lease-checkpoint
		experimental-enable-lease-checkpoint-persist experimental-enable-v2v3 experimental-initial-corrupt-check
		experimental-memory-mlock experimental-peer-skip-client-san-verification experimental-snapshot-catchup-entries
		experimental-stop-grpc-service-on-defrag experimental-txn-mode-write-with-shared-buffer
		experimental-warning-apply-duration experimental-warning-unary-request-duration
		experimental-watch-progress-notify-interval feature-gates force-new-cluster grpc-keepalive-interval
		grpc-keepalive-min-time grpc-keepalive-timeout heartbeat-interval host-whitelist initial-advertise-peer-urls
		initial-cluster initial-cluster-state initial-cluster-token initial-election-tick-advance key-file
		listen-client-http-urls listen-client-urls listen-metrics-urls listen-peer-urls log-format log-level log-outputs
		log-rotation-config-json logger max-concurrent-streams max-learners max-request-bytes max-snapshots max-txn-ops
		max-wals memory-mlock metrics name peer-auto-tls peer-cert-allowed-cn peer-cert-allowed-hostname peer-cert-file
		peer-client-cert-auth peer-client-cert-file peer-client-key-file peer-crl-file peer-key-file
		peer-skip-client-san-verification peer-trusted-ca-file pre-vote proxy proxy-dial-timeout proxy-failure-wait
		proxy-read-timeout proxy-refresh-interval proxy-write-timeout quota-backend-bytes raft-read-timeout
		raft-write-timeout self-signed-cert-validity snapshot-catchup-entries snapshot-count socket-reuse-address
		socket-reuse-port strict-reconfig-check tls-max-version tls-min-version trusted-ca-file unsafe-no-fsync
		v2-deprecation version wal-dir warning-apply-duration warning-unary-request-duration
		watch-progress-notify-interval
	`
)
