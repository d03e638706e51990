package main

// What Helm prints after it has installed or upgraded a chart.
const (
	metaNotes = `Superpool {{ .Chart.AppVersion }}: the meta cluster.
{{ if not .Values.policies.enabled }}
The TenantPolicies are not of this release yet: where there are none, tenants have what closed says. Helm makes no
object of a kind whose definition comes with the same release, so set policies.enabled=true by an upgrade now:

  kubectl wait --for=condition=Established --timeout=60s crd/tenantpolicies.tenancy.x-k8s.io
  helm upgrade {{ .Release.Name }} <this chart> --namespace {{ .Release.Namespace }} --reset-then-reuse-values --set policies.enabled=true
{{ end }}
Next, each super cluster: kubectl vc join ID --super-kubeconfig FILE. What it makes has credentials, which are in no
value of a chart. With chart superpool-syncer in the place of the syncer that it applies, give it --out.

Definitions, TenantPolicies and namespace vc-manager stay when this release is deleted.
`
	syncerNotes = `The syncer of super cluster {{ .Values.id }}.

It reads the kubeconfig of the super cluster from Secret vc-manager/
{{- .Values.kubeconfigSecret | default (printf "vc-syncer-%s" .Values.id) }}, key config. Without it its pods wait. No
value has it: kubectl vc join {{ .Values.id }} --super-kubeconfig FILE --out DIR writes it, with what else makes a
super cluster one of the pool. Apply from DIR/cluster_{{ .Values.id }} what is neither vc-syncer.yaml nor vc-syncer-rbac.yaml.
`
	agentNotes = `vn-agent in API server mode.

It reads its serving certificate from Secret vc-manager/{{ .Values.tlsSecret }}, and the CA of tenants' identities from
ConfigMap vc-manager/{{ .Values.clientCAConfigMap }}. Without them its pods wait. No value has a key: docs/vn-agent.md
says how to make both. Its account has exec in all of the super cluster: keep it from nodes that run pods of tenants,
by nodeSelector and tolerations. Tenants reach it once the syncer has its address: --vn-agent-address in extraArgs.
`
)
