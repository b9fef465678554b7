{{/* The pod of the Deployment and of the DaemonSet. */}}
{{- define "ccm.pod" -}}
{{- $ownsToken := not (or .Values.env.HCLOUD_TOKEN .Values.env.HCLOUD_TOKEN_FILE) -}}
{{- $isLocal := and .Values.networking.enabled (not .Values.monitoring.enabled) (not (index .Values.args "bind-address")) -}}
{{- $port := include "ccm.port" . -}}
{{- $address := index .Values.args "bind-address" | default "" -}}
{{- $probeHost := ternary "127.0.0.1" "" (or $isLocal (eq $address "127.0.0.1")) -}}
metadata:
  labels:
    {{- include "ccm.selectorLabels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    {{- if kindIs "map" . }}
    - {{ toYaml . | nindent 6 | trim }}
    {{- else }}
    - name: {{ . }}
    {{- end }}
    {{- end }}
  {{- end }}
  serviceAccountName: {{ include "ccm.name" . }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  dnsPolicy: {{ .Values.dnsPolicy }}
  {{- with .Values.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- if .Values.networking.enabled }}
  hostNetwork: true
  {{- end }}
  {{- with .Values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  tolerations:
  # This program removes the taint.
  - key: node.cloudprovider.kubernetes.io/uninitialized
    operator: Equal
    value: "true"
    effect: NoSchedule
  - key: CriticalAddonsOnly
    operator: Exists
  - key: node-role.kubernetes.io/control-plane
    operator: Exists
    effect: NoSchedule
  - key: node-role.kubernetes.io/master
    operator: Exists
    effect: NoSchedule
  - key: node.kubernetes.io/not-ready
    operator: Exists
    effect: NoExecute
  {{- if .Values.networking.enabled }}
  # The network of the pods may wait for routes, and routes wait for this program.
  - key: node.kubernetes.io/not-ready
    operator: Exists
    effect: NoSchedule
  - key: node.kubernetes.io/network-unavailable
    operator: Exists
    effect: NoSchedule
  {{- end }}
  {{- with .Values.additionalTolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if eq .Values.kind "Deployment" }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml .Values.topologySpreadConstraints | nindent 4 }}
  {{- else if include "ccm.isReplicated" . }}
  topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "ccm.selectorLabels" . | nindent 8 }}
  {{- end }}
  {{- end }}
  containers:
  - name: cloud-controller-manager
    image: "{{ .Values.image.repository }}:{{ tpl .Values.image.tag . | default .Chart.AppVersion }}"
    {{- with .Values.image.pullPolicy }}
    imagePullPolicy: {{ . }}
    {{- end }}
    command:
    - machinist
    - cloud-controller-manager
    args:
    {{- range $name, $value := .Values.args }}
    {{- if not (kindIs "invalid" $value) }}
    - {{ printf "--%s%s" $name (ternary "" (printf "=%v" $value) (eq (toString $value) "")) | quote }}
    {{- end }}
    {{- end }}
    {{- if $isLocal }}
    - --bind-address=127.0.0.1
    {{- end }}
    {{- if .Values.networking.enabled }}
    - --allocate-node-cidrs=true
    - {{ printf "--cluster-cidr=%s" .Values.networking.clusterCIDR | quote }}
    {{- end }}
    {{- if .Values.machines.enabled }}
    - {{ printf "--machine-namespace=%s" .Values.machines.namespace | quote }}
    {{- end }}
    env:
    {{- if $ownsToken }}
    # The program reads the file again when the Secret changes.
    - name: HCLOUD_TOKEN_FILE
      value: /etc/hcloud/token
    {{- end }}
    {{- range $name, $source := .Values.env }}
    {{- if $source }}
    - name: {{ $name }}
      {{- tpl (toYaml $source) $ | nindent 6 }}
    {{- end }}
    {{- end }}
    {{- if .Values.networking.enabled }}
    - name: HCLOUD_NETWORK
      {{- if .Values.networking.network.value }}
      value: {{ tpl (toString .Values.networking.network.value) . | quote }}
      {{- else }}
      {{- tpl (toYaml .Values.networking.network) . | nindent 6 }}
      {{- end }}
    {{- end }}
    {{- if and (not .Values.monitoring.enabled) (not .Values.env.HCLOUD_METRICS_ENABLED) }}
    - name: HCLOUD_METRICS_ENABLED
      value: "false"
    {{- end }}
    {{- if .Values.monitoring.enabled }}
    ports:
    # Plain HTTP without permissions.
    - name: metrics
      containerPort: 8233
      protocol: TCP
    {{- with $port }}
    - name: https
      containerPort: {{ . }}
      protocol: TCP
    {{- end }}
    {{- end }}
    {{- if $port }}
    livenessProbe:
      httpGet:
        path: /healthz
        port: {{ $port }}
        scheme: HTTPS
        {{- with $probeHost }}
        host: {{ . }}
        {{- end }}
      initialDelaySeconds: 20
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 6
    readinessProbe:
      httpGet:
        path: /readyz
        port: {{ $port }}
        scheme: HTTPS
        {{- with $probeHost }}
        host: {{ . }}
        {{- end }}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 3
    {{- end }}
    {{- with .Values.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .Values.securityContext }}
    securityContext:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- if or $ownsToken .Values.extraVolumeMounts }}
    volumeMounts:
    {{- if $ownsToken }}
    - name: hcloud-token
      mountPath: /etc/hcloud
      readOnly: true
    {{- end }}
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- end }}
  {{- if or $ownsToken .Values.extraVolumes }}
  volumes:
  {{- if $ownsToken }}
  - name: hcloud-token
    secret:
      secretName: {{ .Values.secret.name }}
      defaultMode: 0440
      items:
      - key: {{ .Values.secret.tokenKey }}
        path: token
  {{- end }}
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- end }}
{{- end }}
