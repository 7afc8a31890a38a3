package rewrite_test

import (
	"testing"

	"github.com/talos-mage/talos-mage/internal/machineconfig/rewrite"
)

func TestShow(t *testing.T) {
	for _, text := range []string{`# all about the machine
machine:
  # kubelet settings
  kubelet:
    # metrics need it
    extraArgs:
      rotate-server-certificates: "true" # yes
      feature-gates: ${GATES}
    nodeIP:
      validSubnets: [192.0.2.0/24]
    extraMounts: []
  nodeLabels:
    a/b: 'x'
    node.kubernetes.io/exclude-from-external-load-balancers:
      $patch: delete
  # the files
  files:
    # cri
    - op: create
      path: /etc/cri/conf.d/20-customization.part
      content: |
        [plugins]
          # hello
          x = 1

        y = 2
    - op: overwrite
      path: /etc/nfsmount.conf
      permissions: 0o644
      content: |
        [ NFSMount ]
  time:
    servers:
    - time.example
  sysctls:
    vm.max_map_count: "262144"
  install:
    disk: /dev/nvme0n1
cluster:
  network:
    cni:
      name: none
  proxy:
    disabled: true # cilium
  allowSchedulingOnControlPlanes: true
  apiServer:
    extraArgs:
      anonymous-auth: "true"
      # level
      v: "2"
    admissionControl:
      # pods
      - name: PodSecurity
        configuration:
          exemptions:
            namespaces:
              - rook
  etcd:
    advertisedSubnets: [192.0.2.0/24]
---
apiVersion: v1alpha1
kind: TCPProbeConfig
name: x
`, `{machine: {kubelet: {extraArgs: {a: b}}, type: worker}}`, `machine:
  kubelet: &k
    extraArgs: {a: b}
  sysctls:
    <<: {a: "1"}
    b: "2"
`} {
		for _, split := range []bool{true} {
			done, err := rewrite.Strategic(text, rewrite.Options{SplitRoles: split})
			t.Logf("%v\n%s\n=====CP\n%s\n%v %v %v", err, done.Text, done.ControlPlane, done.Moved, done.Decisions, done.Kept)
		}
	}
}
