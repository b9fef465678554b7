{{/* Name of the objects. */}}
{{- define "ccm.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "ccm.selectorLabels" -}}
{{- tpl (toYaml .Values.selectorLabels) . }}
{{- end }}

{{- define "ccm.labels" -}}
{{ include "ccm.selectorLabels" . }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Name of the roles. The default release has the name that the kustomize base has. */}}
{{- define "ccm.roleName" -}}
{{- if eq (include "ccm.name" .) "machinist-cloud-controller-manager" -}}
machinist:cloud-controller-manager
{{- else -}}
machinist:{{ include "ccm.name" . }}
{{- end }}
{{- end }}

{{/* Namespace and name of the Lease. */}}
{{- define "ccm.leaseNamespace" -}}
{{- index .Values.args "leader-elect-resource-namespace" | default "kube-system" }}
{{- end }}

{{- define "ccm.leaseName" -}}
{{- index .Values.args "leader-elect-resource-name" | default "cloud-controller-manager" }}
{{- end }}

{{/* Port of the HTTPS server; empty if args.secure-port is 0, which disables it. */}}
{{- define "ccm.port" -}}
{{- $port := 10258 }}
{{- range list "port" "secure-port" }}
{{- if hasKey $.Values.args . }}
{{- $given := index $.Values.args . }}
{{- if not (kindIs "invalid" $given) }}
{{- $port = int $given }}
{{- end }}
{{- end }}
{{- end }}
{{- if $port }}{{ $port }}{{ end }}
{{- end }}

{{/* Whether several pods run, so that some of them wait for the Lease. */}}
{{- define "ccm.isReplicated" -}}
{{- if or (eq .Values.kind "DaemonSet") (gt (int .Values.replicaCount) 1) }}true{{ end }}
{{- end }}

{{/* Rejects values that would start a program that cannot work. */}}
{{- define "ccm.checkValues" -}}
{{- if .Values.robot.enabled }}
{{- fail "robot.enabled: dedicated servers (Robot) are not supported. Set it to false" }}
{{- end }}
{{- if contains "hcloud-cloud-controller-manager" .Values.image.repository }}
{{- fail "image.repository: expected an image with the program machinist, found hcloud-cloud-controller-manager" }}
{{- end }}
{{- if and .Values.env.HCLOUD_TOKEN .Values.env.HCLOUD_TOKEN_FILE }}
{{- fail "env: expected HCLOUD_TOKEN or HCLOUD_TOKEN_FILE, found both. Remove one" }}
{{- end }}
{{- range list "allocate-node-cidrs" "cluster-cidr" }}
{{- if hasKey $.Values.args . }}
{{- fail (printf "args.%s: the chart sets this flag. Use networking.enabled and networking.clusterCIDR" .) }}
{{- end }}
{{- end }}
{{- if hasKey .Values.args "machine-namespace" }}
{{- fail "args.machine-namespace: the chart sets this flag. Use machines.enabled and machines.namespace" }}
{{- end }}
{{- if eq (toString (index .Values.args "leader-elect")) "false" }}
{{- if include "ccm.isReplicated" . }}
{{- fail "args.leader-elect: several pods must not work without a Lease. Remove it, or set replicaCount to 1" }}
{{- end }}
{{- end }}
{{- end }}

{{/* The same name under the name in the values of hcloud-cloud-controller-manager's chart. */}}
{{- define "hcloud-cloud-controller-manager.name" -}}
{{- include "ccm.name" . }}
{{- end }}
