{{- define "kedge-metrics.labels" -}}
app.kubernetes.io/name: kedge-metrics
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kedge-metrics.secret" -}}
{{- if .Values.tls.generate -}}
kedge-metrics-tls
{{- else -}}
{{ required "tls.secretName is required without tls.generate" .Values.tls.secretName }}
{{- end }}
{{- end }}
