// Command kubectldrain prints the pods that kubectl's drain would evict from nodes, a line each: the node, and the pod
// with its namespace. It is given a kubeconfig and the nodes' names.
package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubectl/pkg/drain"
)

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig string, nodes []string) error {
	settings, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}

	client, err := kubernetes.NewForConfig(settings)
	if err != nil {
		return err
	}

	helper := drain.Helper{Ctx: context.Background(), Client: client, Force: true, IgnoreAllDaemonSets: true,
		DeleteEmptyDirData: true, GracePeriodSeconds: -1, Out: os.Stderr, ErrOut: os.Stderr}

	for _, node := range nodes {
		list, errs := helper.GetPodsForDeletion(node)
		if len(errs) > 0 {
			return errs[0]
		}

		for _, pod := range list.Pods() {
			fmt.Printf("%s %s/%s\n", node, pod.Namespace, pod.Name)
		}
	}

	return nil
}
