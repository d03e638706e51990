# The other versions of Kubernetes that control planes of tests may have, one for each minor: make versions.
OTHER_KUBERNETES_VERSIONS := v1.34.10 v1.35.4 v1.36.3
