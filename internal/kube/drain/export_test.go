package drain

import "context"

// Chosen are the pods that a drain of the node would evict, each as namespace/name.
func (d Drainer) Chosen(ctx context.Context, node string) ([]string, error) {
	pods, err := d.podsOn(ctx, node)
	if err != nil {
		return nil, err
	}

	chosen, err := d.choose(ctx, pods)

	names := make([]string, 0, len(chosen))
	for _, pod := range chosen {
		names = append(names, pod.Namespace+"/"+pod.Name)
	}

	return names, err
}
