# The program alone, for jobs that run it. `go tool mage dist` makes what is copied, and builds this where it can. Else:
#
#   go tool mage dist && docker build --file Dockerfile dist
#
# It has no sops, kubectl or talosctl; an image that needs one is made from this, with that copied in.
FROM gcr.io/distroless/static-debian12:nonroot

# amd64 or arm64, as the builder says.
ARG TARGETARCH

COPY talos-mage_linux_${TARGETARCH}/talos-mage /usr/local/bin/talos-mage

# The base's own user, as a number: Kubernetes can then see that it is not root.
USER 65532:65532

# Where a cluster's repository is mounted.
WORKDIR /cluster

ENTRYPOINT ["/usr/local/bin/talos-mage"]
