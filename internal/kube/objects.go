package kube

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Read gets the object or list at a path, of any group, into a variable of its type. Queries are pairs of a name and a
// value.
func (c *Client) Read(ctx context.Context, path string, into any, queries ...string) error {
	request := c.api.Get().AbsPath(path)
	for n := 1; n < len(queries); n += 2 {
		request = request.Param(queries[n-1], queries[n])
	}

	body, err := c.do(ctx, request)
	if err != nil {
		return err
	}

	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("read what the Kubernetes API answers: %w", err)
	}

	return nil
}

// Create sends a new object to a path.
func (c *Client) Create(ctx context.Context, path string, object any) error {
	return c.send(ctx, c.api.Post().SetHeader("Content-Type", "application/json"), path, object)
}

// Merge merges a part of an object into it; null takes a field away. With a resource version in it the API refuses it,
// as a conflict, if the object has changed since.
func (c *Client) Merge(ctx context.Context, path string, part any) error {
	return c.send(ctx, c.api.Patch(types.MergePatchType), path, part)
}

func (c *Client) send(ctx context.Context, request *rest.Request, path string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("write request to the Kubernetes API: %w", err)
	}

	_, err = c.do(ctx, request.AbsPath(path).Body(body))

	return err
}

// do gives the answer's body, or the failure that the API server names in its own type of error.
func (c *Client) do(ctx context.Context, request *rest.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()

	result := request.MaxRetries(0).Do(ctx) // the caller knows better when to ask again
	if err := result.Error(); err != nil {
		return nil, err
	}

	return result.Raw()
}
